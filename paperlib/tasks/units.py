"""The closed list of units, and where one ends an answer.

What follows a number and is neither here nor, if the question is given, what the question counts
belongs to the answer: ``5 million`` is not 5, nor is ``5xy``, ``5 or more`` or ``36 pi``.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import lru_cache

from paperlib.tasks.normal_form import TEXT

_NAMES = {name: names.split()[0] for names in (
    "m meter metre;km kilometer kilometre;cm centimeter centimetre;mm millimeter millimetre;dm;"
    "μm um micrometer;nm nanometer;g gram gramme;kg kilogram;mg milligram;L l liter litre;dL;"
    "mL ml milliliter;s sec second;ms millisecond;μs;ns nanosecond;J joule;kJ kilojoule;MJ;mJ;"
    "N newton;kN;mN;W watt;kW kilowatt;MW megawatt;mW;kWh;V volt;kV;mV;A amp ampere;mA;K kelvin;"
    "Pa pascal;kPa;MPa;Hz hertz;kHz;MHz;GHz;mol mole;mmol;cal calorie;kcal;eV;keV;MeV;GeV;T;mT;"
    "μC;μF;Ω ohm;kΩ;B byte;kB;MB;GB;"
    "min minute;h hr hour;day;week wk;month;year yr;in inch;ft foot feet;yd yard;"
    "mi mile;lb pound;oz ounce;gal gallon;qt quart;pt pint;acre;ha hectare;ton tonne;deg degree;"
    "C celsius;F fahrenheit;rad radian;dollar buck usd;cent;euro eur;yuan rmb;rupee;ruble;yen;"
    "mi/h mph;km/h kph kmh kmph;m/s mps;% percent percentage pct;unit;point;person people;man men;"
    "woman women;child children;time;way;item;piece;boy;girl;student;teacher;friend;car;book;page;"
    "apple;orange;egg;cookie;ball;marble;coin;stamp;ticket;card;box;bag;cup;bottle;pencil;animal;"
    "dog;cat;bird;tree;flower;digit;integer;solution;value;triangle;edge;vertex vertices;side;"
    "step;game;team;lap"
).split(";") for name in names.split()}  # fmt: skip
_POWERS = {"square": 2, "sq": 2, "cubic": 3, "cu": 3}
# Units without \text: directly behind a number, and single letters behind a space. Others may be
# variables.
_ATTACHED = frozenset("cm mm km kg mg mL ml ft in hr min sec lb lbs mph %".split())
_AFTER_A_SPACE = frozenset("msghL")
_BASE = re.compile(
    r"([-+]?)\(?(-?\d[\dA-F.]*)\)?\s*(?:_|\(?base)[\s({]*(?:base)?\s*(\d+|[a-z]+)[\s)}]*"
)
_BASES = {"two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9}
_NUMBER = re.compile(r"(?!.*\\text|.*[A-Za-z]\.?\s+\d).*(?:[\d})]\.?|\\pi)", re.DOTALL)
_COUNTED = re.compile(r"(?:how (?:many|much)|number of)((?: [a-z]+){1,3})")


@lru_cache(1000)
def counted(question: str) -> frozenset[str]:
    """What a question counts: the words behind "how many" and "number of", without plural."""
    plain = " ".join(re.findall(r"[a-z]+|[.,;:?!]", question.casefold()))
    return frozenset(_singular(word) for words in _COUNTED.findall(plain) for word in words.split())


def split_unit(text: str, asked: frozenset[str] = frozenset()) -> tuple[str, str]:
    """``(rest, unit)`` of a cleaned answer; the unit in normal form, "" if it ends in none.

    A base is as a unit. Of a compound quantity, such as ``3 h 20 min``, nothing is split off.
    """
    if based := _BASE.fullmatch(TEXT.sub(r"\1", text)):
        return based[1] + based[2], f"base {_BASES.get(based[3], based[3])}"
    for start in re.finditer(r"\\text\{|(?<![\\A-Za-z^])([A-Za-zμΩ]+)|\\%", text):
        head, letters = text[: start.start()], start[1] or ""
        attached = head == head.rstrip() or len(letters) == 1 and letters not in _AFTER_A_SPACE
        if attached and letters and letters not in _ATTACHED:
            continue
        if _NUMBER.fullmatch(head.rstrip()) and (unit := unit_of(text[start.start() :], asked)):
            return head.rstrip(), unit
    return text, ""


def unit_of(text: str, asked: frozenset[str] = frozenset()) -> str:
    """The normal form of a text that is units and nothing else, such as ``m/s^2``; else ""."""
    plain = re.sub(r"\\(?:text|cdot)|[{}.*]", " ", text.replace("\\%", "%"))
    powers: Counter[str] = Counter()
    sign, power, noun = 1, 1, ""
    for word, exponent, other in re.findall(r"([A-Za-zμΩ%]+)(?:\s*\^\s*(-?\d))?|([^\s-])", plain):
        folded = word.casefold() if len(word) > 2 else word  # Mm is not mm
        names = (word, folded, _singular(folded))
        if other == "/" or folded == "per":
            sign = -1
        elif folded in _POWERS:
            power = _POWERS[folded]
        elif names[-1] in asked:
            noun = names[-1]
        else:
            unit = next((_NAMES[name] for name in names if name in _NAMES), "")
            over, _, under = unit.partition("/")
            if not over:
                return ""
            powers[over] += sign * power * int(exponent or 1)
            if under:
                powers[under] -= sign
            power = 1
    if len(powers) > 1:
        powers.pop("deg", None)  # of degrees Celsius
    units = " ".join(name if n == 1 else f"{name}^{n}" for name, n in sorted(powers.items()))
    return (units or noun) if power == 1 else ""


def _singular(word: str) -> str:
    if word.endswith(("ches", "shes", "xes", "sses")):
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith("ss") else word
