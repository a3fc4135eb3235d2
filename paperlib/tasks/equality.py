"""Whether two answers are equal: what math-verify is asked, and what is decided before it.

Decided here, because there libraries differ from each other and from what a reader would say:

1. Equal texts are equal; words are compared as words; a choice by its letter.
2. Numbers: integers and fractions exactly; where a decimal is involved, to a relative error of
   1e-6, except against an integer. Percentages: gold 15 % is 15 %, 0.15 or 15; gold 15 is also
   15 %. Units do not count unless both are known and differ.
3. Ordered pairs and intervals need the same brackets and order. Sets, loose lists, unions and
   ``\\pm`` are unordered, and each other's equals. An inequality is its interval.
4. ``x = 5`` is 5; two equations with the same left side are their right sides.
5. A subscript is a base: ``52_8`` equals 52 (base left out) and not ``52_9``.

Everything else is symbolic mathematics (:mod:`paperlib.tasks.symbolic`). Equality is not
transitive (15 % equals 15 and 0.15), so it must never be used to merge or cluster answers.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from paperlib.tasks.normal_form import (
    Number,
    choice,
    clean,
    compact,
    read_number,
    units_agree,
    word,
)

RELATIVE_TOLERANCE = 1e-6  # six digits of a decimal must be right
LONGEST_ANSWER = 2000  # characters
Symbolic = Callable[[str, str], bool]  # (gold, answer) in cleaned LaTeX

_SEPARATOR = re.compile(r"[,;]|\\cup(?![a-zA-Z])|\\text\{\s*,?\s*(?:and|or)\s*\}|\b(?:and|or)\b")
_FLIPPED = {">": "<", r"\ge": r"\le"}
_OPENS, _CLOSES = {"<": "(", r"\le": "["}, {"<": ")", r"\le": "]"}
_RELATION = re.compile(r"<|>|\\le(?![a-zA-Z])|\\ge(?![a-zA-Z])")
_BASED = re.compile(r"([0-9A-Fa-f]+)\s*_\s*(?:\{\s*(?:\\text\{)?(\w+)\}?\s*\}|(\d))")
_LEFT_SIDE = re.compile(r"\s*([a-zA-Z](?:_\{?\w+\}?)?(?:\([a-zA-Z](?:,\s*[a-zA-Z])*\))?)\s*=(?!=)")
_MEMBER = re.compile(r"\s*[a-zA-Z]\s*\\in(?![a-zA-Z])\s*")
_SET_BUILDER = re.compile(
    r"\\\{\s*[a-zA-Z]\s*(?:\\in\s*(?:\\mathbb\s*\{?\s*)?R\s*\}?\s*)?(?:\||:|\\mid\b)(.*)\\\}"
)


def equal(gold: str, answer: str, symbolic: Symbolic) -> bool:
    """Whether ``answer`` is right where the right answer is ``gold`` (never the other way round).

    Args:
        gold, answer: raw LaTeX or text, without ``\\boxed{}``.
        symbolic: asked about pairs that are neither texts, numbers nor collections.
    """
    if len(answer) > LONGEST_ANSWER:  # only the same text could be right
        return compact(gold) == compact(answer)
    return _equal(clean(gold), clean(answer), symbolic)


def readable(gold: str, symbolic: Symbolic) -> bool:
    """Whether a gold is understood: if not, only the same text is right."""
    gold = clean(gold)
    if word(gold) or choice(gold) or read_number(gold) or _BASED.fullmatch(gold):
        return True
    if found := _collection(_same_side(gold, "x")[0]):
        return all(readable(part, symbolic) for part in found[1])
    return bool(gold) and symbolic(gold, gold)


def _equal(gold: str, answer: str, symbolic: Symbolic) -> bool:
    if not gold or not answer:
        return False
    if compact(gold) == compact(answer):
        return True
    for decide in (_choices, _words, _numbers, _based):
        verdict = decide(gold, answer)
        if verdict is not None:
            return verdict
    gold, answer = _same_side(gold, answer)
    if compact(gold) == compact(answer):
        return True
    mine, theirs = _collection(gold), _collection(answer, is_list=_is_loose_list(gold))
    if mine or theirs:
        if not mine and not theirs[0] and len(theirs[1]) == 1:
            return _equal(gold, theirs[1][0], symbolic)  # \{5\} for 5
        return bool(mine and theirs) and _collections_equal(mine, theirs, symbolic)
    verdict = _numbers(gold, answer)
    if verdict is not None:
        return verdict
    if read_number(gold) and not re.search(r"[\\+*/^()=a-zA-Z-]", answer[1:]):
        return False  # digits and punctuation that are no number: nothing to compute
    return symbolic(gold, answer)


def _choices(gold: str, answer: str) -> bool | None:
    mine, theirs = choice(gold), choice(answer)
    if mine and theirs:
        return mine[0] == theirs[0]
    if mine and mine[1]:
        return _equal(mine[1], answer, lambda *_: False)
    if theirs and theirs[1]:
        return _equal(gold, theirs[1], lambda *_: False)
    return None


def _words(gold: str, answer: str) -> bool | None:
    mine, theirs = word(gold), word(answer)
    if mine is None and theirs is None:
        return None
    return mine == theirs


def _numbers(gold: str, answer: str) -> bool | None:
    mine, theirs = read_number(gold), read_number(answer)
    if mine is None or theirs is None:
        return None
    values = [mine.value]
    if mine.percent != theirs.percent:
        # the sign left out, or written where the question already asks for a percentage
        values.append(mine.value / 100 if mine.percent else mine.value * 100)
    return units_agree(mine.unit, theirs.unit) and any(
        _close(Number(v, mine.decimal, False, ""), theirs) for v in values
    )


def _close(gold: Number, answer: Number) -> bool:
    if gold.value == answer.value:
        return True
    if gold.value.denominator == 1 or not (gold.decimal or answer.decimal):
        return False
    return abs(gold.value - answer.value) <= RELATIVE_TOLERANCE * abs(gold.value)


def _based(gold: str, answer: str) -> bool | None:
    """Numbers in another base, where one of them names it."""
    mine, theirs = _BASED.fullmatch(gold), _BASED.fullmatch(answer)
    if not mine and not theirs:
        return None
    digits = [(m[1] if m else text).upper() for m, text in ((mine, gold), (theirs, answer))]
    bases = {m[2] or m[3] for m in (mine, theirs) if m}
    return digits[0] == digits[1] and len(bases) == 1


def _same_side(gold: str, answer: str) -> tuple[str, str]:
    """Both without ``x =``, ``x \\in`` or ``\\{x |``, unless they say something about different
    things."""
    gold, answer = (
        _MEMBER.sub("", _SET_BUILDER.sub(r"\1", text).strip(), count=1) for text in (gold, answer)
    )
    mine, theirs = _LEFT_SIDE.match(gold), _LEFT_SIDE.match(answer)
    if "," in gold or "," in answer or gold.count("=") > 1 or answer.count("=") > 1:
        return gold, answer
    if mine and theirs:
        if compact(mine[1]) == compact(theirs[1]):
            return gold[mine.end() :].strip(), answer[theirs.end() :].strip()
    elif mine and "=" not in answer:
        return gold[mine.end() :].strip(), answer
    elif theirs and "=" not in gold:
        return gold, answer[theirs.end() :].strip()
    return gold, answer


# A collection is (brackets, parts): "()" ordered or open, "" unordered.
Collection = tuple[str, list[str]]


def _is_loose_list(text: str) -> bool:
    return len(_split(text)) > 1 and read_number(text) is None


def _collection(text: str, is_list: bool = False) -> Collection | None:
    """``text`` as a collection, None if it is a single value.

    ``is_list``: read "100,200" as two numbers, since the other side is a list.
    """
    if read_number(text) and not is_list:
        return None
    if interval := _interval(text):
        return interval
    parts = _split(text)
    if len(parts) > 1:
        return "", parts
    if text.startswith(r"\{") and text.endswith(r"\}") and _closes_at_end(text, 1):
        return "", _split(text[2:-2].strip())
    if text[0] in "([" and text[-1] in ")]" and _closes_at_end(text, 0):
        inner = _split(text[1:-1].strip(), only_commas=True)
        if len(inner) > 1:
            return text[0] + text[-1], inner
    if text.count(r"\pm") == 1:
        return "", [text.replace(r"\pm", "+").removeprefix("+").strip(), text.replace(r"\pm", "-")]
    return None


def _interval(text: str) -> Collection | None:
    """An inequality in one variable as its interval: ``x > 4`` is ``(4, \\infty)``."""
    relations = _RELATION.findall(text)
    sides = [side.strip() for side in _RELATION.split(text)]
    if relations and set(relations) <= set(_FLIPPED):  # read it from the right
        relations, sides = [_FLIPPED[r] for r in reversed(relations)], sides[::-1]
    if not relations or not set(relations) <= set(_OPENS) or not all(sides) or len(sides) > 3:
        return None
    variable = [bool(re.fullmatch("[a-zA-Z]", side)) for side in sides]
    opens, closes = _OPENS[relations[0]], _CLOSES[relations[-1]]
    if len(sides) == 3:
        return (opens + closes, [sides[0], sides[2]]) if variable[1] else None
    if variable == [True, False]:
        return "(" + closes, [r"-\infty", sides[1]]
    if variable == [False, True]:
        return opens + ")", [sides[0], r"\infty"]
    return None


def _split(text: str, only_commas: bool = False) -> list[str]:
    """``text`` at the separators outside all brackets; a single part if there are none."""
    parts, depth, start, position = [], 0, 0, 0
    while position < len(text):
        depth = max(0, depth + (text[position] in "([{") - (text[position] in ")]}"))
        separator = _SEPARATOR.match(text, position) if depth == 0 else None
        if separator and (not only_commas or separator[0] in ",;"):
            parts.append(text[start:position].strip())
            start = position = separator.end()
        else:
            position += 1
    parts.append(text[start:].strip())
    return [part for part in parts if part]


def _closes_at_end(text: str, start: int) -> bool:
    """Whether the bracket at ``start`` is closed by the last character and not before."""
    depth = 0
    for position in range(start, len(text)):
        depth += (text[position] in "([{") - (text[position] in ")]}")
        if depth == 0:
            return position == len(text) - 1
    return False


def _collections_equal(gold: Collection, answer: Collection, symbolic: Symbolic) -> bool:
    (brackets, parts), (others, rivals) = gold, answer
    if not brackets and not others:
        parts, rivals = _flat(parts), _flat(rivals)
    if brackets != others or len(parts) != len(rivals):
        return False
    if brackets:
        return all(_equal(g, a, symbolic) for g, a in zip(parts, rivals, strict=True))
    left = list(rivals)
    for part in parts:  # unordered: each part takes one of the answer's, the same text first
        ranked = sorted(left, key=lambda rival, part=part: compact(rival) != compact(part))
        match = next((rival for rival in ranked if _equal(part, rival, symbolic)), None)
        if match is None:
            return False
        left.remove(match)
    return True


def _flat(parts: list[str]) -> list[str]:
    """Sets and ``\\pm`` within a union or list, spelled out."""
    out: list[str] = []
    for part in parts:
        inner = _collection(part)
        out += inner[1] if inner and not inner[0] else [part]
    return out
