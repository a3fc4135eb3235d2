"""Which part of a completion is the answer, and whether it is right: one policy for training and
evaluation.

Three modes:

- ``math`` (default). What is thought is no answer: what stands in ``<think>``, ``<reasoning>`` and
  their like, and all before a closing mark whose opening stands in the prompt. Of the rest, the
  answer is

  1. the answer section if there is one: after the last ``<answer>``, up to ``</answer>`` (a box
     inside it counts, else its whole text);
  2. else the last ``\\boxed{...}``. Boxes with nothing but "and", "or" or a comma between them are
     one list: hedging among them earns nothing.

  A section or box that is not closed, or empty, is no answer; earlier ones do not stand in for it
  (a truncated rollout must not be paid for a guess it went on to revise). Thinking that never
  closes has no answer.
- ``extractive`` (LightEval's rule, which evaluates Memory-R+): as ``math``; where that finds
  neither section nor box, what follows the first ``####`` or the last "answer is", else the
  right-most formula or number.
- ``strict`` (released Memory-R code): the text of the answer section, or the whole completion,
  equals the gold as a string.

When two answers are equal is told in :mod:`paperlib.tasks.answers`. No answer equals an empty gold.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from paperlib.environment import available_cores
from paperlib.errors import check_choice
from paperlib.tasks.answers import equal, readable
from paperlib.tasks.units import counted

LONGEST_ENDING = 4000  # characters in which the right-most formula is looked for
MODES = ("math", "extractive", "strict")

_MARK = re.compile(
    r"(?i:<(?P<closes>/?)(?P<name>think|thinking|thought|reasoning)>)|\[(?P<ends>/?)THINK\]"
    r"|<\|channel\|>(?:analysis|(?P<final>final))<\|message\|>"
)
_BOX = re.compile(r"\\(?:boxed|fbox)\s*(\{|(?=[^\s{}$\\]))")
_UNBRACED = re.compile(r"[^\s{}$.,;]*")
_BRACE = re.compile(r"(?<!\\)[{}]")
_BETWEEN_BOXES = re.compile(
    r"[\s$.,;}]*(?:,|;|/|\\text\{\s*,?\s*(?:and|or)\s*\}|,?\s*(?:and|or|or maybe|and also))"
    r"[\s$]*\\(?:boxed|fbox)\s*\{?"
)
_NEXT_QUESTION = re.compile(r"\n\s*(?:Question|Problem|Q)\s*\d*\s*[:.]", re.IGNORECASE)
_MARKER = re.compile(
    r"(?:final answer|answer)\s*(?:is|[:=])\s*:?|(?<!#)####(?!#)", re.IGNORECASE
)
_FORMULA = re.compile(
    r"\$\$(?P<a>[^$]+)\$\$|\$(?P<b>[^$\n]+)\$|\\\((?P<c>.{1,300}?)\\\)|\\\[(?P<d>.{1,300}?)\\\]"
    r"|(?P<e>(?<![\w.])[-+]?\$?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:\s*/\s*\d+)?(?:\s*\\?%)?)",
    re.DOTALL,
)
Span = tuple[int, int]


def find_answer(completion: str) -> Span | None:
    """Character span of the stripped final answer in ``completion``, or None if there is none.

    The span starts at the first non-space character of the answer: the position whose layer
    logits MEDS records (Sec. 3.3). Of several boxes it is the last one's.
    """
    spans = _answer_spans(_visible(completion))
    return spans[-1] if spans else None


def extract_answer(completion: str) -> str | None:
    """The final answer's text, or None. Several boxes in a row are joined by commas."""
    spans = _answer_spans(_visible(completion))
    return ", ".join(completion[start:end] for start, end in spans) if spans else None


def _visible(completion: str) -> str:
    """The completion with spaces in place of what is thought, so that offsets stay."""
    shown, position, start, name = [], 0, None, ""

    def hide(begin: int, end: int) -> None:
        nonlocal position
        shown.append(completion[position:begin] + " " * (end - max(begin, position)))
        position = end

    for mark in _MARK.finditer(completion):
        closes = mark["closes"] or mark["ends"] or mark["final"]
        kind = (mark["name"] or "").casefold()
        if closes and (start is None or name == kind):
            if start is None:  # opened in the prompt
                shown.clear()
                position = 0
            hide(start or 0, mark.end())
            start = None
        elif not closes and start is None:
            start, name = mark.start(), kind
    if start is not None:
        end = completion.find("<answer>", start) if name == "reasoning" else -1
        hide(start, end if end >= 0 else len(completion))
    return "".join(shown) + completion[position:]


def _answer_spans(visible: str) -> list[Span]:
    start = visible.rfind("<answer>")
    if start < 0:
        return _last_boxes(visible) or []
    start += len("<answer>")
    end = visible.find("</answer>", start)
    section = _stripped(visible, start, end) if end >= 0 else None
    boxes = _last_boxes(visible[start:end]) if section else []
    return [section] if boxes is None else [(start + a, start + b) for a, b in boxes]


def _last_boxes(text: str) -> list[Span] | None:
    """The last box and those in one list with it; [] if it is empty or not closed; None: no box."""
    found: list[tuple[int, Span | None]] = []  # where it begins, its content
    closing = _closing_braces(text)
    for box in _BOX.finditer(text):
        if found and found[-1][1] and box.start() < found[-1][1][1]:
            found.pop()  # a box within a box: the inner one counts
        if box[1]:
            end = closing.get(box.end() - 1)
            content = None if end is None else _stripped(text, box.end(), end)
        else:
            content = _stripped(text, box.end(), _UNBRACED.match(text, box.end()).end())
        found.append((box.start(), content))
    if not found:
        return None
    run = [found[-1][1]] if found[-1][1] else []
    for _, before in reversed(found[:-1]):
        if not run or not before or not _BETWEEN_BOXES.fullmatch(text[before[1] : run[-1][0]]):
            break
        run.append(before)
    return run[::-1]


def _closing_braces(text: str) -> dict[int, int]:
    """The position of the closing brace for each opening one that has one, in a single pass."""
    pairs, waiting = {}, []
    for brace in _BRACE.finditer(text):
        if brace[0] == "{":
            waiting.append(brace.start())
        elif waiting:
            pairs[waiting.pop()] = brace.start()
    return pairs


def _stripped(text: str, start: int, end: int) -> Span | None:
    inner = text[start:end]
    start += len(inner) - len(inner.lstrip())
    return (start, start + len(inner.strip())) if inner.strip() else None


def grade(completion: str, gold: str, mode: str = "math", question: str = "") -> bool:
    """True if the completion's final answer equals the gold answer. Never raises on model text.

    Args:
        gold: LaTeX or text; boxes, or GSM8K's ``#### N``, are looked into.
        mode: one of :data:`MODES`.
        question: what it counts ("how many apples") may stand behind a number as a unit.

    Raises:
        UserError: unknown mode.
    """
    return grade_all([completion], [gold], mode, [question])[0]


def grade_all(
    completions: Sequence[str], golds: Sequence[str], mode: str = "math",
    questions: Sequence[str] | None = None,
) -> list[bool]:
    """:func:`grade` of each; those that need symbolic mathematics share the cores."""
    check_choice("grading mode", mode, MODES)

    def right(completion: str, gold: str, question: str) -> bool:
        if mode == "strict":
            return strict_answer(completion) == gold != ""
        answer = extract_answer(completion)
        if mode == "extractive":
            answer = _rightmost(completion, answer)
        return answer is not None and equal(gold_answer(gold), answer, counted(question))

    with ThreadPoolExecutor(min(16, available_cores())) as threads:
        return list(threads.map(right, completions, golds, questions or [""] * len(golds)))


def unreadable_golds(golds: Sequence[str]) -> list[str]:
    """The golds that nothing but the same text equals, for reports."""
    with ThreadPoolExecutor(min(16, available_cores())) as threads:
        understood = threads.map(lambda gold: readable(gold_answer(gold)), golds)
        return [gold for gold, read in zip(golds, understood, strict=True) if not read]


def gold_answer(gold: str) -> str:
    """The answer within a gold: after the last ``####``, within its last boxes, or all of it."""
    gold = gold.rpartition("####")[2].strip()
    boxes = _last_boxes(gold)
    return gold if boxes is None else ", ".join(gold[start:end] for start, end in boxes)


def strict_answer(completion: str) -> str:
    """The released rule: after the last ``<answer>``, up to ``</answer>``; else everything."""
    return completion.rpartition("<answer>")[2].partition("</answer>")[0].strip()


def _rightmost(completion: str, answer: str | None) -> str | None:
    """The extractive rule; ``answer`` is what section or box gave."""
    if answer is None:
        text = _visible(completion)
        if "<answer>" in text or _BOX.search(text):
            return None  # begun, but not given
        question = _NEXT_QUESTION.search(text)
        if question and text[: question.start()].strip():
            text = text[: question.start()]  # it runs on into a question it made up
        answer = text
        markers = list(_MARKER.finditer(text))
        hashes = [m for m in markers if m[0] == "####"]
        if markers:
            answer = text[(hashes[0] if hashes else markers[-1]).end() :].strip()
            answer = answer.partition("\n")[0]
    if len(answer) <= 40 and not re.search(r"[a-z]{2,}\s", answer):
        return answer  # an expression, not a sentence
    found = list(_FORMULA.finditer(answer[-LONGEST_ENDING:]))
    return next(g for g in found[-1].groups() if g) if found else answer
