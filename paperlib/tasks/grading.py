"""Which part of a completion is the answer, and whether it is right.

One policy for training and evaluation:

1. An answer section counts if there is one: after the last ``<answer>``, up to ``</answer>``.
2. Else the last ``\\boxed{...}`` outside ``<think>`` and ``<reasoning>``.
3. A section or box that is not closed, or empty, is no answer; earlier ones do not stand in for it
   (a truncated rollout must not be paid for a guess it went on to revise). Thinking that never
   closes has no answer.
"""

from __future__ import annotations

import re
from decimal import Decimal

_THINKING = re.compile(r"<(think|reasoning)>.*?(?:</\1>|\Z)", re.DOTALL)
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)")
_THOUSANDS = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d*)?")


def find_answer(completion: str) -> tuple[int, int] | None:
    """Character span of the stripped final answer in ``completion``, or None if there is none.

    The span starts at the first non-space character of the answer: the position whose layer
    logits MEDS records (Sec. 3.3).
    """
    start = completion.rfind("<answer>")
    if start >= 0:
        start += len("<answer>")
        end = completion.find("</answer>", start)
        return _strip_span(completion, start, end) if end >= 0 else None
    # Blank out the thinking, keeping its length, so that offsets stay those of the completion.
    visible = _THINKING.sub(lambda m: " " * len(m.group()), completion)
    start = visible.rfind("\\boxed{")
    if start < 0:
        return None
    start += len("\\boxed{")
    depth = 1
    for end in range(start, len(visible)):
        if visible[end] == "{" and visible[end - 1] != "\\":
            depth += 1
        elif visible[end] == "}" and visible[end - 1] != "\\":
            depth -= 1
            if depth == 0:
                return _strip_span(visible, start, end)
    return None


def _strip_span(text: str, start: int, end: int) -> tuple[int, int] | None:
    inner = text[start:end]
    stripped = inner.strip()
    if not stripped:
        return None
    start += len(inner) - len(inner.lstrip())
    return start, start + len(stripped)


def extract_answer(completion: str) -> str | None:
    """The final answer's text, or None."""
    span = find_answer(completion)
    return None if span is None else completion[span[0] : span[1]]


def grade(completion: str, gold: str) -> bool:
    """True if the completion's final answer equals the gold answer.

    Numbers are compared by value ("1,250", "$1250.", "1250.0" are equal), anything else as text
    without case and white space.
    """
    answer = extract_answer(completion)
    return answer is not None and _normal_form(answer) == _normal_form(gold)


def _normal_form(answer: str) -> Decimal | str:
    text = answer.strip().removeprefix("\\$").strip("$").strip().rstrip(".")
    if _THOUSANDS.fullmatch(text):
        text = text.replace(",", "")
    if _NUMBER.fullmatch(text):
        return Decimal(text)  # exact at any length, unlike float and int()
    return "".join(answer.split()).casefold()
