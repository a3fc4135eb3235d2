"""What an answer looks like once spelling is out of the way: the closed list of rewrites.

Text in, text out; no mathematics and no evaluation of any kind.
"""

import re
import tomllib
import unicodedata
from functools import lru_cache
from itertools import accumulate
from pathlib import Path

TEXT = re.compile(r"\\text\s*\{([^{}]*)\}")
with Path(__file__).with_name("spellings.toml").open("rb") as _file:
    SPELLINGS = tomllib.load(_file)
TIMES: dict[str, str] = SPELLINGS["times"]
_FUNCTIONS = "arcsin|arccos|arctan|sin|cos|tan|cot|sec|csc|log|ln|exp|sqrt"
_LETTERS = "infty|pi|alpha|beta|gamma|theta|lambda|phi|omega"
_TOKEN = r"\s*(\\[a-zA-Z]+|[a-zA-Z\d])"  # an argument without braces
_GAP = r"(?:\{,\}|,\\!|\\[,!]|')\s*"  # between thousands

_REWRITES = [(re.compile(pattern, re.DOTALL), new) for pattern, new in (
    # commands in one spelling, no dress
    (r"\\(?:left|right)\s*\.|\\(?:left|right|[bB]igg?[lr]?|displaystyle|textstyle|limits"
     r"|textdollar)(?![a-zA-Z])|\\hspace\s*\{[^{}]*\}", ""),
    (r"\\(?:text(?:bf|it|rm|sf|tt|normal)|mbox|math(?:rm|bf|it|sf)|operatorname|boldsymbol|bm)"
     r"(?![a-zA-Z])", r"\\text"),
    (r"\\[cdt](frac|binom)", r"\\\1"), (r"\\([lgn]e)q(?:slant)?(?![a-zA-Z])", r"\\\1"),
    (r"\\([a-zA-Z]+)", lambda m: SPELLINGS["commands"].get(m[1], m[0])),
    # numbers: thousands, repeating decimals, powers of ten, fractions, millions
    (rf"(?<![\d.])\d{{1,3}}(?:{_GAP}\d{{3}})+(?!\d)", lambda m: re.sub(r"\D", "", m[0])),
    (r"^\d{1,3}(?: \d{3})+$", lambda m: m[0].replace(" ", "")),
    (r"(?<=\d)\.(?=[/\s])", ""),
    (r"(\d+)\.(\d*)\\(?:overline|bar|dot)\s*\{?\s*(\d+)\s*\}?", lambda m:
     rf"\frac{{{m[1]}{m[2]}{m[3]}-{m[1]}{m[2]}}}{{{'9' * len(m[3])}{'0' * len(m[2])}}}"),
    (r"(?<=\d)[eE]([+-]?\d+)(?!\w)", r"\\times 10^{\1}"),
    (r"(?<![\w.}^)])(\d+)\s*/\s*(\d+)(?![\d.])", r"\\frac{\1}{\2}"),
    (rf"(?<=[\d}}])\s*(?:\\text\s*\{{)?\s*({'|'.join(TIMES)})s?\s*(?:\}}|(?=[^a-z}}]|$))",
     lambda m: rf"\times {TIMES[m[1]]}"),
    # spaces, operators
    (r"(\\\\)\s*\[-?[\d.]+\s*[a-z]{2}\]", r"\1"),  # row spacing
    (r"\\q?quad(?![a-zA-Z])|(?<!\\)\\[!,;:> ]|~", " "), (r"\\not\s*=", r"\\ne "),
    (r"\.{3,}", r"\\dots "), (r"\*\*(?=\()", "^"), (r"(?<=[\w)}])\s*\*\*\s*(-?\w+)", r"^{\1}"),
    (r"\*\*|`|__", ""), (r"\\\{\s*\\\}", r"\\emptyset "), (r"\^\s*\{\s*\\circ\s*\}", r"^\\circ "),
    (r"\^\s*(?=\\text)", ""), (r"\^\s*(\\frac\s*\{[^{}]*\}\s*\{[^{}]*\})", r"^{\1}"),
    # letters and functions, in any dress
    (r"\\(?:Bbb|mathbb)\s*([A-Z])", r"\\mathbb{\1}"),
    (rf"\\(?:text|hat|vec)\s*\{{\s*({_FUNCTIONS}|{_LETTERS}|[a-zA-Z])\s*\}}", r" \1 "),
    (rf"(?<![\\a-zA-Z])({_FUNCTIONS}|{_LETTERS})(?![a-zA-Z])", r"\\\1"),
    (r"(?<![\\a-zA-Z])inf(?:inity)?(?![a-zA-Z])", r"\\infty "),
    (r"(?<![\\a-zA-Z])abs\s*\(([^()]*)\)", r"|\1|"), (r"\\sqrt\s*\(([^()]*)\)", r"\\sqrt{\1}"),
    (r"\\text\s*\{([^{}]+?)[\s,]+(and|or)\s*\}", r"\\text{\1} \\text{\2}"),
    # arguments in braces
    (r"(\\sqrt(?:\[\d+\])?)\s*(\d+)", r"\1{\2}"),
    (rf"(\\(?:frac|binom|sqrt(?:\[\d+\])?)){_TOKEN}", r"\1{\2}"),
    (rf"(\\(?:frac|binom)\s*\{{(?:[^{{}}]|\{{[^{{}}]*\}})*\}}){_TOKEN}", r"\1{\2}"),
    (r"\{([^{}]+)\\choose([^{}]+)\}", r"\\binom{\1}{\2}"),
    # matrices, columns and cases
    (r"[\[(]\s*\\begin\{(array|matrix)\}(?:\{[^{}]*\})?(.*?)\\end\{\1\}\s*[\])]",
     r"\\begin{pmatrix}\2\\end{pmatrix}"),
    (r"\\begin\{([pb]matrix|cases|aligned)\}([^&]*?\\\\[^&]*?)(?:\\\\\s*)?\\end\{\1\}",
     lambda m: f"({m[2].replace(chr(92) * 2, ',')})"),
    (r"^\\\{\s*[a-zA-Z]\s*(?:\\in\s*\\mathbb\{R\}\s*)?[|:](.*)\\\}$", r"\1"),
    (r"^\(([^()=]*)\)\s*=\s*\(([^()]*)\)$", lambda m: ", ".join(
        map("=".join, zip(m[1].split(","), m[2].split(","), strict=False)))),
    # money, percent, mathematics' marks, spaces
    (r"\\?%", r"\\%"), (r"^\s*([-+]?)\s*\\?\$\s*([\d.,]+)\s*$", r"\1\2 \\text{dollar}"),
    (r"\\[()\[\]]|\\?[$£€]", ""), (r"\s+(?=[_^]|\\frac)", ""), (r"([_^])(\d)\s", r"\1{\2} "),
)]  # fmt: skip
# Two letters without an operator are a word: "Noel" is not a product of letters.
_WORDS = re.compile(r"(?=.*\w\w)[^\W\d_](?:[^\W\d_]|[\s'’,.-])*", re.DOTALL)
_CLOCK = re.compile(r"0?(\d{1,2}:\d\d)(?:([ap])\.?m\.?)?", re.IGNORECASE)
_TRIGONOMETRY = re.compile(r"\\(?:arc)?(?:sin|cos|tan|cot|sec|csc)")


@lru_cache(10_000)  # a group shares its gold, and many of its answers are alike
def clean(text: str) -> str:
    """``text`` without mathematics' dress, each thing in one spelling."""
    text = text.strip().rstrip(".")
    while text[:1] == "{" and r"\choose" not in text and depths(text).index(0) == len(text) - 1:
        text = text[1:-1].strip()
    for sign, latex in SPELLINGS["signs"].items():
        text = text.replace(sign, latex)
    text = re.sub("[½⅓¼¾⅔⅕-⅞]", r" \g<0> ", re.sub("[⁰¹²³⁴-⁹⁻]+", r"^{\g<0>}", text))
    text = unicodedata.normalize("NFKC", text).replace("−", "-").replace("⁄", "/")
    for pattern, new in _REWRITES:
        text = pattern.sub(new, text)
    if not _TRIGONOMETRY.search(text):
        text = text.replace(r"^\circ", r"\text{deg}")
    return text.strip().removeprefix(r"\approx").strip().rstrip(" \n.。,;:\\")


def compact(text: str) -> str:
    """The normal form for comparing texts; of spaces, only those between digits are left.

    Words (as their letters) and clock times, which are no mathematics, end with a full stop.
    """
    words = TEXT.sub(r" \1 ", text).strip(" .")
    if _WORDS.fullmatch(words):
        return "".join(filter(str.isalpha, words.casefold())) + "."
    text = re.sub(r"(?<=\d) +(?=\d)", "\0", TEXT.sub(r"\1", text))
    text = re.sub(r"\{(\w)\}", r"\1", "".join(text.split()))
    if clock := _CLOCK.fullmatch(text):
        return f"{clock[1]}{clock[2] or ''}.".lower()
    return text


def depths(text: str) -> list[int]:
    """How many brackets are open behind each character, and 0 behind the end."""
    return [*accumulate((c in "([{") - (c in ")]}") for c in text), 0]
