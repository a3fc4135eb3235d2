"""Which part of a completion is the answer, and whether it is right: one policy for training and
evaluation. The rules of each mode are in README.md beside this file; when two answers are equal is
told in :mod:`paperlib.tasks.answers`. No answer equals an empty gold.
"""

import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from paperlib.environment import available_cores
from paperlib.errors import check_choice
from paperlib.tasks.answers import equal, readable
from paperlib.tasks.units import counted

LONGEST_ENDING = 4000  # characters in which the right-most formula is looked for
MODES = ("math", "extractive", "strict")

_OPENS = r"(?i:<(?:think|thinking|thought|reasoning)>)|\[THINK\]|<\|channel\|>analysis<\|message\|>"
_ENDS = r"(?i:</(?:think|thinking|thought|reasoning)>)|\[/THINK\]|<\|channel\|>final<\|message\|>"
_THOUGHT = re.compile(
    rf"(?:{_OPENS})(?:.*?(?:{_ENDS})|(?<=<reasoning>).*(?=<answer>)|.*)", re.DOTALL
)
_THOUGHT_SINCE_THE_PROMPT = re.compile(rf"\A(?:(?!{_OPENS}).)*(?:{_ENDS})", re.DOTALL)
_BOX = re.compile(r"\\(?:boxed|fbox)\s*(?:\{|([^\s{}$\\.,;][^\s{}$.,;]*))")
_BRACE = re.compile(r"(?<!\\)[{}]")
_BETWEEN_BOXES = re.compile(
    r"[\s$.,;}]*(?:[,;/]|(?:\\text\{)?[\s,]*(?:and|or|or maybe|and also)\s*\}?)"
    r"[\s$]*\\(?:boxed|fbox)\s*\{?"
)
_NEXT_QUESTION = re.compile(r"(?i)(?<=\S)[^\S\n]*\n\s*(?:Question|Problem|Q)\s*\d*\s*[:.]")
_ANSWER_IS = re.compile(r"(?i)answer\s*(?:is|[:=])\s*:?")
_FORMULA = re.compile(
    r"\$\$([^$]+)\$\$|\$([^$\n]+)\$|\\\((.{1,300}?)\\\)|\\\[(.{1,300}?)\\\]"
    r"|((?<![\w.])[-+]?\$?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:\s*/\s*\d+)?(?:\s*\\?%)?)",
    re.DOTALL,
)
Span = tuple[int, int]


def find_answer(completion: str) -> Span | None:
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


def _visible(completion: str) -> str:
    """The completion with spaces in place of what is thought, so that offsets stay."""
    for thought in (_THOUGHT_SINCE_THE_PROMPT, _THOUGHT):
        completion = thought.sub(lambda hidden: " " * len(hidden[0]), completion)
    return completion


def _answer_spans(completion: str) -> list[Span]:
    visible = _visible(completion)
    opened = visible.rfind("<answer>")
    if opened < 0:
        return _last_boxes(visible) or []
    start, end = opened + len("<answer>"), visible.find("</answer>", opened)
    section = _stripped(visible, start, end) if end >= 0 else None
    boxes = _last_boxes(" " * start + visible[start:end]) if section else []
    return [section] if boxes is None else boxes


def _last_boxes(text: str) -> list[Span] | None:
    """The last box and those in one list with it; [] if it is empty or not closed; None: no box."""
    boxes = list(_BOX.finditer(text))
    run: list[Span] = []
    for box in reversed(boxes):
        content = box.span(1) if box[1] else _braced(text, box.end())
        if not content or run and not _BETWEEN_BOXES.fullmatch(text, content[1], run[0][0]):
            break
        run.insert(0, content)
    return run if boxes else None


def _braced(text: str, start: int) -> Span | None:
    depth = 1
    for brace in _BRACE.finditer(text, start):
        depth += 1 if brace[0] == "{" else -1
        if depth == 0:
            return _stripped(text, start, brace.start())
    return None


def _stripped(text: str, start: int, end: int) -> Span | None:
    inner = text[start:end]
    start += len(inner) - len(inner.lstrip())
    return (start, start + len(inner.strip())) if inner.strip() else None


def grade(completion: str, gold: str, mode: str = "math", question: str = "") -> bool:
    """True if the completion's final answer equals the gold answer. Never raises on model text.

    Args:
        gold: LaTeX or text; boxes, or GSM8K's ``#### N``, are looked into.
        mode: one of :data:`MODES`; another raises a UserError.
        question: what it counts ("how many apples") may stand behind a number as a unit.
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
        answer = extract_answer(completion) if mode == "math" else _extractive(completion)
        return answer is not None and equal(gold_answer(gold), answer, counted(question))

    return _each(right, completions, golds, questions or [""] * len(golds))


def unreadable_golds(golds: Sequence[str]) -> list[str]:
    """The golds that nothing but the same text equals, for reports."""
    understood = _each(lambda gold: readable(gold_answer(gold)), golds)
    return [gold for gold, read in zip(golds, understood, strict=True) if not read]


def _each(function: Callable[..., bool], *columns: Sequence[str]) -> list[bool]:
    with ThreadPoolExecutor(min(16, available_cores())) as threads:
        return list(threads.map(function, *columns))


def gold_answer(gold: str) -> str:
    """The answer within a gold: after the last ``####``, within its last boxes, or all of it."""
    gold = gold.rpartition("####")[2].strip()
    boxes = _last_boxes(gold)
    return gold if boxes is None else ", ".join(gold[start:end] for start, end in boxes)


def strict_answer(completion: str) -> str:
    """The released rule: after the last ``<answer>``, up to ``</answer>``; else everything."""
    return completion.rpartition("<answer>")[2].partition("</answer>")[0].strip()


def _extractive(completion: str) -> str | None:
    answer = extract_answer(completion)
    if answer is None:
        text = _visible(completion)
        if "<answer>" in text or _BOX.search(text):
            return None  # begun, but not given
        text = _NEXT_QUESTION.split(text, 1)[0]  # where it runs on into one it made up
        given = re.split(r"(?<!#)####(?!#)", text)[1:2] or _ANSWER_IS.split(text)[1:][-1:]
        answer = given[0].strip().partition("\n")[0] if given else text
    if len(answer) <= 40 and not re.search(r"[a-z]{2,}\s", answer):
        return answer  # an expression, not a sentence
    found = list(_FORMULA.finditer(answer[-LONGEST_ENDING:]))
    return found[-1][found[-1].lastindex] if found else answer
