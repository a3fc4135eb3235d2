"""Which part of a completion is the answer, and whether it is right: one policy for training and
evaluation.

Three modes:

- ``math`` (default). The answer is

  1. the answer section if there is one: after the last ``<answer>``, up to ``</answer>`` (a box
     inside it counts, else its whole text);
  2. else the last ``\\boxed{...}`` outside ``<think>`` and ``<reasoning>``. Boxes with nothing but
     "and", "or" or a comma between them are one list: hedging among them earns nothing.

  A section or box that is not closed, or empty, is no answer; earlier ones do not stand in for it
  (a truncated rollout must not be paid for a guess it went on to revise). Thinking that never
  closes has no answer.
- ``extractive`` (LightEval's rule, which evaluates Memory-R+): as ``math``; where that finds
  neither section nor box, what follows the first ``####`` or the last "answer is", else the
  right-most formula or number.
- ``strict`` (released Memory-R code): the text of the answer section, or the whole completion,
  equals the gold as a string.

When two answers are equal is told in :mod:`paperlib.tasks.equality`.
"""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor

from paperlib.errors import check_choice
from paperlib.tasks import symbolic
from paperlib.tasks.equality import equal, readable

LONGEST_ENDING = 4000  # characters in which the right-most formula is looked for
MODES = ("math", "extractive", "strict")

_THINKING = re.compile(r"<(think|reasoning)>.*?(?:</\1>|\Z)", re.DOTALL)
_BOX = re.compile(r"\\(?:boxed|fbox)\s*(\{|(?=[^\s{}$\\]))")
_UNBRACED = re.compile(r"[^\s{}$.,;]*")
_BRACE = re.compile(r"(?<!\\)[{}]")
_BETWEEN_BOXES = re.compile(
    r"[\s$.,;]*(?:,|;|/|\\text\{\s*,?\s*(?:and|or)\s*\}|,?\s*(?:and|or|or maybe|and also))[\s$]*"
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


class _Undecided(Exception):
    """An answer that only symbolic mathematics can compare."""


def find_answer(completion: str) -> tuple[int, int] | None:
    """Character span of the stripped final answer in ``completion``, or None if there is none.

    The span starts at the first non-space character of the answer: the position whose layer
    logits MEDS records (Sec. 3.3). Of several boxes it is the last one's.
    """
    spans = _answer_spans(completion)
    return spans[-1] if spans else None


def extract_answer(completion: str) -> str | None:
    """The final answer's text, or None. Several boxes in a row are joined by commas."""
    spans = _answer_spans(completion)
    return ", ".join(completion[start:end] for start, end in spans) if spans else None


def _answer_spans(completion: str) -> list[tuple[int, int]]:
    if _unclosed_thinking(completion):
        return []
    start = completion.rfind("<answer>")
    if start >= 0:
        start += len("<answer>")
        end = completion.find("</answer>", start)
        if end < 0:
            return []
        section = _strip_span(completion, start, end)
        boxes = _boxes(completion[start:end])
        if boxes and boxes[-1] is None:
            return []
        if boxes:
            return [(start + a, start + b) for a, b in _joined(completion[start:end], boxes)]
        return [section] if section else []
    # Blank out the thinking, keeping its length, so that offsets stay those of the completion.
    visible = _THINKING.sub(lambda m: " " * len(m.group()), completion)
    closing = visible.rfind("</think>")  # a chat template may have opened it in the prompt
    visible = " " * max(0, closing) + visible[max(0, closing):]
    boxes = _boxes(visible)
    return _joined(visible, boxes) if boxes and boxes[-1] is not None else []


def _unclosed_thinking(completion: str) -> bool:
    return completion.rfind("<think>") > completion.rfind("</think>")


def _boxes(text: str) -> list[tuple[int, int] | None]:
    """The stripped content of each box in order; None for one that is empty or never closed."""
    boxes = list(_BOX.finditer(text))
    closing = _closing_braces(text) if boxes else {}
    found: list[tuple[int, int] | None] = []
    for box in boxes:
        if found and found[-1] is not None and box.start() < found[-1][1]:
            found.pop()  # a box within a box: the inner one counts
        if box[1]:
            end = closing.get(box.end() - 1)
            found.append(None if end is None else _strip_span(text, box.end(), end))
        else:
            found.append((box.end(), _UNBRACED.match(text, box.end()).end()))
    return found


def _closing_braces(text: str) -> dict[int, int]:
    """The position of the closing brace for each opening one that has one, in a single pass."""
    pairs, waiting = {}, []
    for brace in _BRACE.finditer(text):
        if brace[0] == "{":
            waiting.append(brace.start())
        elif waiting:
            pairs[waiting.pop()] = brace.start()
    return pairs


def _joined(text: str, boxes: list[tuple[int, int] | None]) -> list[tuple[int, int]]:
    """The last box, and those before it that stand in one list with it."""
    run = [boxes[-1]]
    for before in reversed(boxes[:-1]):
        between = text[before[1] : run[-1][0]] if before else ""
        between = re.sub(r"^\s*\}|\\(?:boxed|fbox)\s*\{?\s*$", "", between)
        if not before or not _BETWEEN_BOXES.fullmatch(between):
            break
        run.append(before)
    return run[::-1]


def _strip_span(text: str, start: int, end: int) -> tuple[int, int] | None:
    inner = text[start:end]
    stripped = inner.strip()
    if not stripped:
        return None
    start += len(inner) - len(inner.lstrip())
    return start, start + len(stripped)


def grade(completion: str, gold: str, mode: str = "math") -> bool:
    """True if the completion's final answer equals the gold answer. Never raises on model text.

    Args:
        gold: LaTeX or text; a box, or GSM8K's ``#### N``, is looked into.
        mode: one of :data:`MODES`.

    Raises:
        UserError: unknown mode.
    """
    return grade_all([completion], [gold], mode)[0]


def grade_all(completions: list[str], golds: list[str], mode: str = "math") -> list[bool]:
    """:func:`grade` of each pair; those that need symbolic mathematics share the cores."""
    check_choice("grading mode", mode, MODES)
    verdicts: list[bool | None] = []
    open_pairs: list[tuple[int, str, str]] = []
    for completion, gold in zip(completions, golds, strict=True):
        if mode == "strict":
            verdicts.append(strict_answer(completion) == gold)
            continue
        answer = extract_answer(completion)
        if mode == "extractive":
            answer = _rightmost(completion, answer)
        right = gold_answer(gold)
        try:
            verdicts.append(answer is not None and equal(right, answer, _undecided))
        except _Undecided:
            open_pairs.append((len(verdicts), right, answer))
            verdicts.append(None)
    if open_pairs:
        with ThreadPoolExecutor(symbolic.worker_count()) as threads:
            compared = threads.map(lambda p: equal(p[1], p[2], symbolic.equivalent), open_pairs)
            for (place, *_), verdict in zip(open_pairs, compared, strict=True):
                verdicts[place] = verdict
    return [bool(verdict) for verdict in verdicts]


def unreadable_golds(golds: list[str]) -> list[str]:
    """The golds that nothing but the same text equals, for reports."""
    with ThreadPoolExecutor(symbolic.worker_count()) as threads:
        read = list(threads.map(
            lambda gold: readable(gold_answer(gold), symbolic.equivalent), golds
        ))
    return [gold for gold, understood in zip(golds, read, strict=True) if not understood]


def _undecided(gold: str, answer: str) -> bool:
    raise _Undecided


def gold_answer(gold: str) -> str:
    """The answer within a gold: after the last ``####``, within the last box, or all of it."""
    gold = gold.rpartition("####")[2].strip()
    boxes = _boxes(gold)
    if boxes and boxes[-1]:
        return gold[slice(*boxes[-1])]
    return gold


def strict_answer(completion: str) -> str:
    """The released rule: after the last ``<answer>``, up to ``</answer>``; else everything."""
    return completion.rpartition("<answer>")[2].partition("</answer>")[0].strip()


def _rightmost(completion: str, answer: str | None) -> str | None:
    """The extractive rule; ``answer`` is what section or box gave."""
    if answer is None:
        if "<answer>" in completion or _BOX.search(completion) or _unclosed_thinking(completion):
            return None  # begun, but not given
        text = _THINKING.sub("", completion)
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
