"""The closed list of units, and where one ends an answer.

What follows a number and is neither here nor, if the question is given, what the question counts
belongs to the answer: ``5 million`` is not 5, nor is ``5xy``, ``5 or more`` or ``36 pi``.
"""

import re
from collections import Counter
from functools import lru_cache

from paperlib.tasks.normal_form import SPELLINGS, TEXT

_NAMES = {name: names.split()[0] for names in SPELLINGS["units"] for name in names.split()}
_PHRASES = [(re.compile(rf"(?i)(?<![a-z]){pattern}"), new) for pattern, new in (
    (r"(?:square|sq)\s+(\w+)", r"\1^2"), (r"(?:cubic|cu)\s+(\w+)", r"\1^3"), (r"per\b", "/"),
    (r"mph\b", "mi/h"), (r"(?:kmph|kph|kmh)\b", "km/h"), (r"mps\b", "m/s"),
    (r"deg(?:rees?)?\s+(?=[CF])", ""),
)]  # fmt: skip
# Where a unit may begin: without \text, some directly behind a number, others behind a space. Other
# letters may be variables.
_START = re.compile(
    r"\\text\{|\\%|(?<![\\A-Za-z^])(?:cm|mm|km|kg|mg|mL|ml|ft|in|hr|min|sec|lbs?|mph)(?![A-Za-z])"
    r"|(?<=\s)(?:[A-Za-zμΩ]{2,}|[msghL](?![A-Za-z]))"
)
_BASE = re.compile(
    r"([-+]?)\(?(-?\d[\dA-F.]*)\)?\s*(?:_|\(?base)[\s({]*(?:base)?\s*(\d+|[a-z]+)[\s)}]*"
)
_BASES = {"two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9}
_NUMBER = re.compile(r"(?!.*\\text|.*[A-Za-z]\.?\s+\d).*(?:[\d})]\.?|\\pi)", re.DOTALL)
_COUNTED = re.compile(r"(?:how (?:many|much)|number of)((?:\s+[a-z]+){1,3})")


@lru_cache(1000)
def counted(question: str) -> frozenset[str]:
    """What a question counts: the words behind "how many" and "number of", without plural."""
    words = " ".join(_COUNTED.findall(question.casefold())).split()
    return frozenset(map(_singular, words))


def split_unit(text: str, asked: frozenset[str] = frozenset()) -> tuple[str, str]:
    """``(rest, unit)`` of a cleaned answer; the unit in normal form, "" if it ends in none.

    A base is as a unit. Of a compound quantity, such as ``3 h 20 min``, nothing is split off.
    """
    if based := _BASE.fullmatch(TEXT.sub(r"\1", text)):
        return based[1] + based[2], f"base {_BASES.get(based[3], based[3])}"
    for start in _START.finditer(text):
        number, rest = text[: start.start()].rstrip(), text[start.start() :]
        if _NUMBER.fullmatch(number) and (unit := unit_of(rest, asked)):
            return number, unit
    return text, ""


def unit_of(text: str, asked: frozenset[str] = frozenset()) -> str:
    """The normal form of a text that is units and nothing else, such as ``m/s^2``; else ""."""
    plain = re.sub(r"\\(?:text|cdot)|[{}.*]", " ", text.replace("\\%", "%"))
    for pattern, new in _PHRASES:
        plain = pattern.sub(new, plain)
    sign, noun, powers = 1, "", Counter()
    for word, exponent, other in re.findall(r"([A-Za-zμΩ%]+)(?:\s*\^\s*(-?\d))?|([^\s-])", plain):
        folded = word.casefold() if len(word) > 2 else word  # Mm is not mm
        names = (word, folded, _singular(folded))
        unit = next((_NAMES[name] for name in names if name in _NAMES), "")
        if other == "/":
            sign = -1
        elif unit:
            powers[unit] += sign * int(exponent or 1)
        elif names[-1] in asked:
            noun = names[-1]
        else:
            return ""
    units = (name if n == 1 else f"{name}^{n}" for name, n in sorted(powers.items()))
    return " ".join(units) or noun


def _singular(word: str) -> str:
    if word.endswith(("ches", "shes", "xes", "sses")):
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith("ss") else word
