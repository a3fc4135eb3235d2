"""What an answer looks like once spelling is out of the way: LaTeX dress, units, number formats.

Text in, text or numbers out; no mathematics and no evaluation of any kind.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from fractions import Fraction

LONGEST_NUMBER = 300  # digits or power of ten of a number that is read as one

_UNICODE = {
    "−": "-", "–": "-", "×": r"\times ", "·": r"\cdot ", "÷": "/", "π": r"\pi ", "∞": r"\infty ",
    "≤": r"\le ", "≥": r"\ge ", "°": r"^\circ ", "√": r"\sqrt ", "∪": r"\cup ", "∅": r"\emptyset ",
    "±": r"\pm ", "⁄": "/", "∈": r"\in ", "²": "^2", "³": "^3",
    "½": r"\frac{1}{2}", "¼": r"\frac{1}{4}", "¾": r"\frac{3}{4}",
    "⅓": r"\frac{1}{3}", "⅔": r"\frac{2}{3}",
}  # fmt: skip
_REWRITES = [(re.compile(pattern), new) for pattern, new in (
    (r"\\(?:display|text|script)style(?![a-zA-Z])|\\(?:left|right)(?![a-zA-Z])\.?", ""),
    (r"\\(?:big|Big|bigg|Bigg)[lrm]?(?![a-zA-Z])", ""),
    (r"\\[dtc]frac(?![a-zA-Z])", r"\\frac"),
    (r"\\frac\s*(\\[a-zA-Z]+|[a-zA-Z\d])\s*(\\[a-zA-Z]+|[a-zA-Z\d])(?![a-zA-Z])",
     r"\\frac{\1}{\2}"),
    (r"\\h?v?phantom\s*(?:\{[^{}]*\}|\S)|\\textdollar(?![a-zA-Z])|^\s*\\approx(?![a-zA-Z])", ""),
    (r"\\_", "_"), (r"℃", r"\\text{ degrees}"),
    (r",\\!\s*|\{,\}|\\,(?=\d{3})", ","),  # thousands: 10,\!080, 1{,}000, 1\,000
    (r"(?<!\\)\\[!,;:> ]|~|\\q?quad(?![a-zA-Z])", " "),
    (r"\\varnothing(?![a-zA-Z])|\\\{\s*\\\}", r"\\emptyset "),
    (r"\\leqslant(?![a-zA-Z])|\\leq(?![a-zA-Z])|<=", r"\\le "),
    (r"\\geqslant(?![a-zA-Z])|\\geq(?![a-zA-Z])|>=", r"\\ge "),
    (r"\\lt(?![a-zA-Z])", "<"), (r"\\gt(?![a-zA-Z])", ">"),
    (r"\\lbrace(?![a-zA-Z])", r"\\{"), (r"\\rbrace(?![a-zA-Z])", r"\\}"),
    (r"\^\s*\{?\s*\\circ\s*\}?|\\degree(?![a-zA-Z])", r"\\text{ degrees}"),
    (r"\*\*(?=\s*[\d({a-zA-Z\\-])(?<=[\w)}]\*\*)", "^"),  # Python's power
    (r"\*\*|__|`", ""),  # Markdown
    (r"\\(?:text(?:bf|it|rm|sf|tt|normal)?|mbox|mathrm|mathbf|mathit|operatorname)\s*(?=\{)",
     r"\\text"),
    (r"\\[$£€]|[$£€]|\\[()\[\]](?!\s*\d+(?:pt|em))", ""),  # math mode and currency
)]  # fmt: skip
_TEXT = re.compile(r"\\text\{([^{}]*)\}")
_UNIT_NAMES = {
    "centimeters": "cm", "centimetres": "cm", "meters": "m", "metres": "m", "kilometers": "km",
    "inches": "in", "feet": "ft", "hours": "h", "minutes": "min", "seconds": "s", "degrees": "deg",
    "kilograms": "kg", "grams": "g",
}  # fmt: skip
_KNOWN_UNITS = {*_UNIT_NAMES.values(), "mm", "cents", "dollars", "miles", "days", "weeks", "years"}

_DIGITS = r"(?:\d{1,3}(?:,\d{3})+|\d+)"
_PLAIN = rf"[+-]?\s*(?:{_DIGITS}(?:\.\d*)?|\.\d+)"
_DECIMAL = re.compile(
    rf"({_PLAIN})(?:\s*(?:[eE]|(?:\\times|\\cdot|\*)\s*10\s*\^\s*)\{{?\s*([+-]?\d+)\s*\}}?)?"
)
_POWER_OF_TEN = re.compile(r"([+-]?)10\s*\^\s*\{?\s*([+-]?\d+)\s*\}?")
_RATIO = re.compile(
    rf"([+-]?)\s*(?:\\frac\s*\{{\s*({_PLAIN})\s*\}}\s*\{{\s*({_PLAIN})\s*\}}"
    rf"|\\frac\s*(\d)\s*(\d)|\(?({_PLAIN})\)?\s*/\s*\(?({_PLAIN})\)?)"
)
_WITH_UNIT = re.compile(
    r"(.*?[\d})])\s*(\\text\{[^{}]*\}|[a-zA-Z]{2,}\.?(?:\s[a-zA-Z]+\.?)*|[a-zA-Z]\b)"
    r"(?:\s*\^\s*\{?[23]\}?)?$"
)
_MIXED = re.compile(r"([+-]?\d+)(?:\s*(?=\\frac)|\s+(?=\d+/))(\S.*)")


@dataclass(frozen=True)
class Number:
    """A number as it was written."""

    value: Fraction
    decimal: bool  # written with a decimal point or a power of ten, so perhaps rounded
    percent: bool
    unit: str  # canonical where known, "" if there is none


def clean(text: str) -> str:
    """``text`` without mathematics' dress: unicode signs, math mode, spacing commands, Markdown,
    a full stop at the end. Braces and ``\\text{}`` stay."""
    for sign, latex in _UNICODE.items():
        text = text.replace(sign, latex)
    text = unicodedata.normalize("NFKC", text)  # full-width digits and the like
    for pattern, new in _REWRITES:
        text = pattern.sub(new, text)
    text = " ".join(text.split())
    while text.endswith((".", "。", ",", ";", ":")):
        text = text[:-1].rstrip()
    return text


def compact(text: str) -> str:
    """The normal form for comparing texts: no spaces, no ``\\text`` wrappers."""
    return "".join(_TEXT.sub(r"\1", text).split())


def split_unit(text: str) -> tuple[str, str]:
    """``(rest, unit)`` of a cleaned text that begins like a number; a unit's power is dropped."""
    head = _WITH_UNIT.match(text)
    if not head or re.search(r"\\text\{", head[1]) and not head[2].startswith("\\text"):
        return text, ""
    bare = not head[2].startswith("\\text")
    unit = _TEXT.sub(r"\1", head[2]).strip(" .").casefold()
    if bare and len(unit) == 1:  # "5 m" may be metres or five m
        return text, ""
    unit = re.sub(r"^(square|cubic|sq\.?)\s+", "", unit)
    plural = _UNIT_NAMES.get(unit) or _UNIT_NAMES.get(unit + "s") or _UNIT_NAMES.get(unit + "es")
    return head[1].strip(), plural or (unit if unit in _KNOWN_UNITS else unit.rstrip("s"))


def units_agree(one: str, other: str) -> bool:
    """False only if both units are known and differ: 5 cm is not 5 m, but it is 5."""
    known = one in _KNOWN_UNITS and other in _KNOWN_UNITS
    return not known or one == other


def read_number(text: str) -> Number | None:
    """The number that a cleaned text is, or None if it is something else (or too long to read).

    Reads integers, decimals, thousands, 4.2e6, 3 \\times 10^5, fractions and mixed numbers of
    them, each with a percent sign or a unit.
    """
    body, unit = split_unit(text)
    percent = unit in ("percent", "per cent", "%", "\\%")
    stripped = re.sub(r"\s*\\?%$", "", body)
    percent = percent or stripped != body
    body = stripped.strip()
    while body.startswith("{") and body.endswith("}") and "{" not in body[1:]:
        body = body[1:-1].strip()
    found = _value(body)
    if found is None:
        return None
    return Number(*found, percent=percent, unit="" if percent else unit)


def _value(body: str) -> tuple[Fraction, bool] | None:
    if len(body) > LONGEST_NUMBER:
        return None
    if ten := _POWER_OF_TEN.fullmatch(body):
        return _scale(Fraction(-1 if ten[1] == "-" else 1), ten[2], True)
    if plain := _DECIMAL.fullmatch(body):
        digits = plain[1].replace(",", "").replace(" ", "")
        decimal = "." in digits or plain[2] is not None
        return _scale(Fraction(digits.rstrip(".")), plain[2] or "0", decimal)
    if ratio := _RATIO.fullmatch(body):
        sign, *parts = ratio.groups()
        top, bottom = [Fraction(p.replace(",", "").replace(" ", "").rstrip("."))
                       for p in parts if p is not None]
        if not bottom:
            return None
        return (-top if sign == "-" else top) / bottom, False
    if mixed := _MIXED.fullmatch(body):
        part = _value(mixed[2].strip())
        if part and 0 < part[0] < 1 and _RATIO.fullmatch(mixed[2].strip()):
            whole = Fraction(mixed[1])
            return whole + (-part[0] if mixed[1].startswith("-") else part[0]), False
    return None


def _scale(value: Fraction, power: str, decimal: bool) -> tuple[Fraction, bool] | None:
    if len(power) > 4 or abs(int(power)) > LONGEST_NUMBER:
        return None
    exact = value * Fraction(10) ** int(power)
    return exact, decimal and exact.denominator != 1


def word(text: str) -> str | None:
    """The word or words a cleaned text is, in normal form, or None if it reads as mathematics.

    Two or more letters without an operator are a word: "Noel" is not a product of letters.
    """
    plain = _TEXT.sub(r" \1 ", text).strip(" .")
    if "\\" in plain or not re.fullmatch(r"[^\W\d_](?:[^\W\d_]|[\s'’,.-])*", plain):
        return None
    if not re.search(r"[^\W\d_]{2,}", plain) or plain.casefold() in ("pi", "inf", "infinity"):
        return None
    return "".join(c for c in plain.casefold() if c.isalpha())


def choice(text: str) -> tuple[str, str] | None:
    """``(letter, rest)`` of an answer to a multiple-choice question such as ``\\text{(D) }12``."""
    plain = " ".join(_TEXT.sub(r" \1 ", text).split())
    found = re.fullmatch(r"\(\s*([A-Ea-e])\s*\)\s*(.*)|([A-E])(?:[.:)]\s*(.*))?", plain)
    if not found:
        return None
    return (found[1] or found[3]).upper(), (found[2] or found[4] or "").strip()
