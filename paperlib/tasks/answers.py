"""Whether two answers are equal: the closed policy of README.md (beside this file), rules 1 to 5.

Everything else is mathematics, and asked of :mod:`paperlib.tasks.symbolic`. Equality is neither
transitive (15 % equals 15 and 0.15) nor symmetric: never use it to merge or cluster answers.
"""

import re
from fractions import Fraction

from paperlib.tasks import symbolic
from paperlib.tasks.normal_form import TEXT, TIMES, clean, compact, depths
from paperlib.tasks.units import split_unit

LONGEST_ANSWER = 500  # characters; of a longer one only the same text is right
MOST_PARTS = 40  # of a list; of a longer one only the same text is right

_SET = re.compile(r"\\(?:cup|cap|setminus|mathbb|le|ge|ne|in)(?![a-zA-Z])|[<>]")
_SEPARATOR = re.compile(r"[,;]|\\(?:cup|lor)(?![a-zA-Z])|\\text\{\s*(?:and|or)\s*\}|\b(?:and|or)\b")
_BOTH = re.compile(r"(?=.*(?:[<>]|\\[lgn]e\b)).*\band\b")  # inequalities
_NAME = re.compile(
    r"((?:\\text\{[^{}]*\}|\\[a-zA-Z]+|[^\W\d_]|_(?:\w|\{\w+\}|\{\\text\{\w+\}\})|\s)+"
    r"(?:\([^()=]*\))?|\([^()=\d]*\)|\|[A-Z]{2}\|)\s*(?:=|\\in(?![a-zA-Z]))(?!.*=)(.*)"
)
_CHOICE = re.compile(r"\(\s*([A-Ea-e])\s*\)\s*(.*)|([A-E])(?:[.:)]\s*(.*))?")
_NUMBER = re.compile(r"[+-]?\s*(?:(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d*)?|\.\d+)")
# Brackets and parts. Without brackets the order does not count; "=" are values in order of names.
Collection = tuple[str, list[str]]


def equal(gold: str, answer: str, asked: frozenset[str] = frozenset()) -> bool:
    """Whether ``answer`` is right where the right answer is ``gold`` (never the other way round).

    Args:
        gold, answer: raw LaTeX or text, without ``\\boxed{}``.
        asked: what the question counts (:func:`paperlib.tasks.units.counted`).
    """
    if max(len(gold), len(answer)) > LONGEST_ANSWER:
        return compact(gold) == compact(answer)
    for word in asked & TIMES.keys():  # asked for dozens
        gold, answer = (re.sub(rf"(?<![a-zA-Z]){word}s?", "unit", text) for text in (gold, answer))
    return _equal(clean(gold), clean(answer), asked)


def readable(gold: str) -> bool:
    """Whether a gold is understood: if not, only the same text is right."""
    gold = split_unit(_named(clean(gold))[1])[0]
    if _choice(gold) or compact(gold).endswith("."):
        return True
    found = _collection(gold)
    return all(map(readable, found[1])) if found else symbolic.equivalent(gold, gold)


def _equal(gold: str, answer: str, asked: frozenset[str]) -> bool:
    (name, value), (other, rival) = _named(gold), _named(answer)
    if name == other or not name and "=" not in gold or not other and "=" not in answer:
        gold, answer = value, rival
    mine, theirs = compact(gold), compact(answer)
    if not gold or not answer or mine == theirs:
        return bool(gold and answer)
    mine, theirs = _choice(gold), _choice(answer)
    if mine and theirs:
        return mine[0] == theirs[0]
    if mine or theirs:
        return _equal(mine[1] if mine else gold, theirs[1] if theirs else answer, asked)
    mine = _collection(gold)
    theirs = _collection(answer, thousands=not mine)  # 100,200 where two numbers are asked for
    if not mine and not theirs:
        return _values_equal(gold, answer, asked)
    if mine and theirs and _collections_equal(mine, theirs, asked):
        return True
    if not mine and not theirs[0] and len(theirs[1]) == 1:
        return _equal(gold, theirs[1][0], asked)  # \{5\} for 5
    return bool(_SET.search(gold + answer)) and symbolic.equivalent(gold, answer)


def _values_equal(gold: str, answer: str, asked: frozenset[str]) -> bool:
    """Two single values, of which each may have a unit."""
    (gold, unit), (answer, other) = split_unit(gold, asked), split_unit(answer, asked)
    if unit and other and unit != other and "%" not in (unit, other):
        return False
    golds = [gold, rf"\frac{{{gold}}}{{100}}"] if unit == "%" != other else [gold]
    answers = [answer, rf"\frac{{{answer}}}{{100}}"] if other == "%" != unit else [answer]
    return any(_numbers_equal(one, two) for one in golds for two in answers)


def _numbers_equal(gold: str, answer: str) -> bool:
    if not (_NUMBER.fullmatch(gold) and _NUMBER.fullmatch(answer)):
        mine, theirs = compact(gold), compact(answer)
        words = mine.endswith(".") and theirs.endswith(".")
        return mine == theirs or not words and symbolic.equivalent(gold, answer)
    exact, other = (Fraction(re.sub("[, ]", "", text).rstrip(".")) for text in (gold, answer))
    return symbolic.close(exact, other, "." in gold + answer and exact.denominator != 1)


def _named(text: str) -> tuple[str, str]:
    """``(name, value)`` of an assignment such as ``x = 5``, ``f(x) = 2x`` or ``x \\in [0, 1]``."""
    named = _NAME.fullmatch(text)
    return (compact(named[1]), named[2].strip()) if named else ("", text)


def _choice(text: str) -> tuple[str, str] | None:
    """``(letter, rest)`` of an answer to a multiple-choice question such as ``\\text{(D) }12``."""
    found = _CHOICE.fullmatch(TEXT.sub(r"\1", text))
    rest = found and (found[2] or found[4] or "").strip()
    return ((found[1] or found[3]).upper(), rest) if found and not _SEPARATOR.match(rest) else None


def _collection(text: str, thousands: bool = True) -> Collection | None:
    """``text`` as a collection, None if it is a single value; ``thousands``: 100,200 is one."""
    if thousands and _NUMBER.fullmatch(split_unit(text)[0]):
        return None
    brackets, parts = "and" if _BOTH.search(text) else "", _split(text)
    bare = text.removeprefix("\\")
    enclosed = bare[:1] in ("(", "[", "{") and depths(bare).index(0) == len(bare) - 1
    if enclosed:
        brackets = text[0] + text[-1] if bare == text else ""
        parts = _split(bare[1:-1].rstrip("\\"))
    elif len(parts) == 1 and text.count(r"\pm") == 1:
        parts = [text.replace(r"\pm", sign).removeprefix("+").strip() for sign in "+-"]
    if len(parts) == 1 and not (enclosed and not brackets):
        return None
    named = [_named(part) for part in parts]
    names = {name.strip("\\") for name, _ in named if name}
    if len({name.partition("_")[0] for name in names}) == 1:  # x = 1, x = 2 or x_1 = 1, x_2 = 2
        parts = [value for _, value in named]
    elif len(names) == len(parts):  # a = 1, b = 2
        return "=", sorted(parts, key=lambda part: _named(part)[0].strip("\\"))
    if brackets:
        return brackets, parts
    spelled_out = []  # sets within a list
    for part in parts:
        inner = _collection(part)
        spelled_out += inner[1] if inner and not inner[0] else [part]
    return "", spelled_out


def _split(text: str) -> list[str]:
    """``text`` at the separators outside all brackets; a single part if there are none."""
    parts, start, depth = [], 0, depths(text)
    for separator in _SEPARATOR.finditer(text):
        if depth[separator.start()] <= 0:
            parts.append(text[start : separator.start()].strip())
            start = separator.end()
    return [part for part in (*parts, text[start:].strip()) if part]


def _collections_equal(gold: Collection, answer: Collection, asked: frozenset[str]) -> bool:
    (brackets, mine), (others, theirs) = gold, answer
    if len(mine) != len(theirs) or len(mine) > MOST_PARTS:
        return False
    if "=" in (brackets, others) or brackets == others not in ("", "and"):
        return all(_equal(one, two, asked) for one, two in zip(mine, theirs, strict=True))
    if brackets != others:
        return False
    left = list(theirs)
    for part in mine:
        match = next((rival for rival in left if _equal(part, rival, asked)), None)
        if match is None:
            return False
        left.remove(match)
    return True
