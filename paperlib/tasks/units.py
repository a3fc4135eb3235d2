"""The closed list of units, and where one ends an answer.

What follows a number and is neither here nor, if the question is given, what the question counts
belongs to the answer: ``5 million`` is not 5, nor is ``5xy``, ``5 or more`` or ``36 pi``.
"""

from __future__ import annotations

import re
from functools import lru_cache

_SYMBOL = re.compile("([nuμmcdkMGT]?)(m|g|s|L|J|N|W|V|A|K|C|F|T|Pa|Hz|mol|eV|cal|B|Wh|Ω)")
_LONG = dict(pair.split(":") for pair in (
    "meter:m metre:m gram:g gramme:g second:s liter:L litre:L joule:J newton:N watt:W volt:V amp:A "
    "ampere:A kelvin:K pascal:Pa hertz:Hz mole:mol calorie:cal byte:B ohm:Ω watt-hour:Wh"
).split())  # fmt: skip
_PREFIXES = {"": "", "nano": "n", "micro": "μ", "milli": "m", "centi": "c", "deci": "d",
             "kilo": "k", "mega": "M", "giga": "G"}  # fmt: skip
_NAMES = {prefix + name: _PREFIXES[prefix] + _LONG[name] for prefix in _PREFIXES for name in _LONG}
_NAMES |= {name: names.split()[0] for names in (
    "s sec;min minute;h hr hour;day;week wk;month;year yr;in inch;ft foot feet;yd yard;mi mile;"
    "lb pound;oz ounce;gal gallon;qt quart;pt pint;acre;ha hectare;ton tonne;deg degree;C celsius;"
    "F fahrenheit;rad radian;dollar buck usd;cent;euro eur;yuan rmb;rupee;ruble rouble;yen;"
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
_TOKEN = re.compile(r"\s*(?:([A-Za-zμΩ%]+(?:-hours?)?)\.?\s*(?:\^\s*(-?\d))?|(/)|[-*]?\s*)")
_EARLIER_UNIT = re.compile(r"\\text|[A-Za-z]\.?\s+\d")
_COUNTED = re.compile(r"(?:how (?:many|much)|number of)((?: [a-z]+){1,3})")


@lru_cache(1000)
def counted(question: str) -> frozenset[str]:
    """What a question counts: the words behind "how many" and "number of", without plural."""
    plain = " ".join(re.findall(r"[a-z]+|[.,;:?!]", question.casefold()))
    return frozenset(_singular(word) for words in _COUNTED.findall(plain) for word in words.split())


def split_unit(text: str, asked: frozenset[str] = frozenset()) -> tuple[str, str]:
    """``(rest, unit)`` of a cleaned answer; the unit in normal form, "" if it ends in none.

    Of a compound quantity, such as ``3 h 20 min``, nothing is split off.
    """
    for start in re.finditer(r"\\text\{|(?<![\\A-Za-z^])[A-Za-zμΩ]|\\%", text):
        head, tail = text[: start.start()], text[start.start() :].replace("\\%", "%")
        number = head.strip()
        if not re.search(r"(?:[\d})]\.?|\\pi)$", number) or _EARLIER_UNIT.search(number):
            continue
        letters = re.match(r"\\text|[A-Za-z]+|.", tail)[0]
        bare = letters != r"\text" and letters not in _ATTACHED
        if bare and (head == number or len(letters) == 1 and letters not in _AFTER_A_SPACE):
            continue
        if unit := unit_of(tail, asked):
            return number, unit
    return text, ""


def unit_of(text: str, asked: frozenset[str] = frozenset()) -> str:
    """The normal form of a text that is units and nothing else, such as ``m/s^2``; else ""."""
    plain = re.sub(r"\\(?:text|cdot)|[{}]", " ", text).rstrip(" .")
    powers: dict[str, int] = {}
    position, sign, power, noun = 0, 1, 1, ""
    while position < len(plain):
        token = _TOKEN.match(plain, position)
        word = (token[1] or "").casefold()
        if token.end() == position:
            return ""
        if token[3] or word == "per":
            sign = -1
        elif word in _POWERS:
            power = _POWERS[word]
        elif _singular(word) in asked:
            noun = _singular(word)
        elif word:
            over, _, under = _canonical(token[1]).partition("/")
            if not over:
                return ""
            powers[over] = powers.get(over, 0) + sign * power * int(token[2] or 1)
            if under:
                powers[under] = powers.get(under, 0) - sign
            power = 1
        position = token.end()
    if len(powers) > 1:
        powers.pop("deg", None)  # of degrees Celsius
    names = (name if n == 1 else f"{name}^{n}" for name, n in sorted(powers.items()))
    return (" ".join(names) or noun) if power == 1 else ""


def _canonical(word: str) -> str:
    for name in (word, word.casefold(), _singular(word.casefold())):
        if name in _NAMES:
            return _NAMES[name]
    symbol = _SYMBOL.fullmatch(re.sub("l$", "L", word).replace("caL", "cal"))
    return symbol[1].replace("u", "μ") + symbol[2] if symbol else ""


def _singular(word: str) -> str:
    if word.endswith(("ches", "shes", "xes", "sses")):
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith("ss") else word
