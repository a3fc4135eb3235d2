"""What an answer looks like once spelling is out of the way: the closed list of rewrites.

Text in, text out; no mathematics and no evaluation of any kind.
"""

from __future__ import annotations

import re
import unicodedata
from fractions import Fraction
from itertools import accumulate

TEXT = re.compile(r"\\text\s*\{([^{}]*)\}")
_SIGNS = dict(zip("−–×·÷∞≤≥≠°∪∅±∈∨⟨⟩√ℝ\u2009\u202f\xa0¢", (
    r"- - \times~ \cdot~ \div~ \infty~ \le~ \ge~ \ne~ ^\circ~ \cup~ \emptyset~ \pm~ \in~ \lor~ ( ) "
    r"\sqrt~ \mathbb{R} \, \, \, \text{cent}").split(), strict=True))  # fmt: skip
_SIGNS |= {"<=": r"\le ", ">=": r"\ge ", "!=": r"\ne "}
_COMMANDS = {
    **dict.fromkeys("left right displaystyle textstyle scriptstyle limits big Big bigg Bigg bigl "
                    "bigr Bigl Bigr biggl biggr Biggl Biggr textdollar".split(), ""),
    **dict.fromkeys("quad qquad enspace thinspace".split(), " "),
    **dict.fromkeys("textbf textit textrm textsf texttt textnormal mbox mathrm mathbf mathit "
                    "operatorname boldsymbol bm".split(), r"\text"),
    "dfrac": r"\frac", "tfrac": r"\frac", "cfrac": r"\frac", "tbinom": r"\binom",
    "dbinom": r"\binom", "leqslant": r"\le", "leq": r"\le", "geqslant": r"\ge", "geq": r"\ge",
    "neq": r"\ne", "lt": "<", "gt": ">", "lbrace": r"\{", "rbrace": r"\}", "langle": "(",
    "rangle": ")", "lvert": "|", "rvert": "|", "vert": "|", "mid": "|", "ldots": r"\dots",
    "cdots": r"\dots", "varnothing": r"\emptyset", "vee": r"\lor", "land": r"\text{and}",
    "wedge": r"\text{and}", "degree": r"^\circ", "backslash": r"\setminus", "R": r"\mathbb{R}",
}  # fmt: skip
TIMES = {"hundred": "10^{2}", "thousand": "10^{3}", "million": "10^{6}", "billion": "10^{9}",
          "trillion": "10^{12}", "dozen": "12"}  # fmt: skip
_FUNCTIONS = "arcsin|arccos|arctan|sin|cos|tan|cot|sec|csc|log|ln|exp|sqrt"
_LETTERS = "infty|pi|alpha|beta|gamma|theta|lambda|phi|omega"
_ARGUMENT = r"\s*(\{(?:[^{}]|\{[^{}]*\})*\}|\\[a-zA-Z]+|[a-zA-Z\d])"
_GAP = r"(?:\{,\}|,\\!|\\[,!]|')\s*"  # between thousands


def _in_braces(match: re.Match[str]) -> str:
    command, *arguments = match.groups()
    return command + "".join(a if a.startswith("{") else f"{{{a}}}" for a in arguments)


def _repeating(match: re.Match[str]) -> str:
    whole, fixed, repeated = match.groups()
    value = Fraction(f"{whole}.{fixed}0")
    value += Fraction(int(repeated), 10 ** len(fixed) * (10 ** len(repeated) - 1))
    return rf"\frac{{{value.numerator}}}{{{value.denominator}}}"


def _nfkc(match: re.Match[str]) -> str:
    return unicodedata.normalize("NFKC", match[0]).replace("−", "-")


_REWRITES = [(re.compile(pattern, re.DOTALL), new) for pattern, new in (
    (r"[½⅓¼¾⅔⅕-⅞]", lambda m: re.sub("(.+)⁄(.+)", r"\\frac{\1}{\2}", _nfkc(m))),
    (r"[⁰¹²³⁴-⁹⁻]+", lambda m: f"^{{{_nfkc(m)}}}"),
    (r"[Α-Ωα-ω]", lambda m: f"\\{unicodedata.name(m[0]).split()[-1].lower()} "),
    (r".+", _nfkc),  # full-width digits and the like
    # numbers: thousands, repeating decimals, powers of ten, mixed, millions
    (rf"(?<![\d.])\d{{1,3}}(?:{_GAP}\d{{3}})+(?!\d)", lambda m: re.sub(r"\D", "", m[0])),
    (r"^\d{1,3}(?: \d{3})+$", lambda m: m[0].replace(" ", "")),
    (r"(?<=\d)\.(?=[/\s])", ""),
    (r"(\d+)\.(\d*)\\(?:overline|bar|dot)\s*\{?\s*(\d+)\s*\}?", _repeating),
    (r"(?<=\d)[eE]([+-]?\d+)(?!\w)", r"\\times 10^{\1}"),
    (r"(?<![\w.])(\d+)\s+(\d+)/(\d+)(?![\w.])", r"\1\\frac{\2}{\3}"),
    (r"(?<![\w.}^)])(\d+)\s*/\s*(\d+)(?![\d.])", r"\\frac{\1}{\2}"),
    (r"\.{3,}", r"\\dots "),
    (rf"(?<=[\d}}])\s*(?:\\text\s*\{{)?\s*({'|'.join(TIMES)})s?\s*(?:\}}|(?=[^a-z}}]|$))",
     lambda m: rf"\times {TIMES[m[1]]}"),
    # commands in one spelling, no dress
    (r"\\(?:left|right)\s*\.", ""), (r"\\([a-zA-Z]+)", lambda m: _COMMANDS.get(m[1], m[0])),
    (r"\\h?v?phantom\s*(?:\{[^{}]*\}|\S)|\\hspace\s*\{[^{}]*\}", ""),
    (r"(\\\\)\s*\[-?[\d.]+\s*[a-z]{2}\]", r"\1"),  # row spacing
    (r"(?<!\\)\\[!,;:> ]|~", " "), (r"\\_", "_"), (r"\\not\s*=", r"\\ne "),
    (r"\*\*(?=\()", "^"), (r"(?<=[\w)}])\s*\*\*\s*(-?\w+)", r"^{\1}"), (r"\*\*|`|__", ""),
    (r"\\\{\s*\\\}", r"\\emptyset "), (r"\^\s*\{\s*\\circ\s*\}", r"^\\circ "),
    (r"\^\s*(?=\\text)", ""), (r"\^\s*(\\frac\s*\{[^{}]*\}\s*\{[^{}]*\})", r"^{\1}"),
    # letters and functions, in any dress
    (r"\\(?:Bbb|mathbb)\s*([A-Z])", r"\\mathbb{\1}"),
    (rf"\\text\s*\{{\s*({_FUNCTIONS}|{_LETTERS})\s*\}}", r"\\\1 "),
    (r"\\(?:text|hat|vec)\s*\{\s*([a-zA-Z])\s*\}", r" \1"),
    (rf"(?<![\\a-zA-Z])({_FUNCTIONS}|{_LETTERS})(?![a-zA-Z])", r"\\\1"),
    (r"(?<![\\a-zA-Z])inf(?:inity)?(?![a-zA-Z])", r"\\infty "),
    (r"(?<![\\a-zA-Z])abs\s*\(([^()]*)\)", r"|\1|"), (r"\\sqrt\s*\(([^()]*)\)", r"\\sqrt{\1}"),
    (r"\\text\s*\{([^{}]+?)[\s,]+(and|or)\s*\}", r"\\text{\1} \\text{\2}"),
    # arguments in braces
    (rf"(\\(?:frac|binom)){_ARGUMENT}{_ARGUMENT}", _in_braces),
    (r"(\\sqrt(?:\[\d+\])?)\s*(\d+)", r"\1{\2}"), (rf"(\\sqrt(?:\[\d+\])?){_ARGUMENT}", _in_braces),
    (r"\{([^{}]+)\\choose([^{}]+)\}", r"\\binom{\1}{\2}"),
    # matrices, columns and cases
    (r"[\[(]\s*\\begin\{array\}(?:\{[^{}]*\})?(.*?)\\end\{array\}\s*[\])]",
     r"\\begin{pmatrix}\1\\end{pmatrix}"),
    (r"\{bmatrix\}", "{pmatrix}"),
    (r"\\begin\{pmatrix\}([^&]*?\\\\[^&]*?)(?:\\\\\s*)?\\end\{pmatrix\}",
     lambda m: f"({m[1].replace(chr(92) * 2, ',')})"),
    (r"\\begin\{(?:cases|aligned)\}([^&]*?)\\end\{(?:cases|aligned)\}",
     lambda m: m[1].replace(r"\\", ",")),
    (r"^\(([^()=]*)\)\s*=\s*\(([^()]*)\)$", lambda m: ", ".join(
        map("=".join, zip(m[1].split(","), m[2].split(","), strict=False)))),
    # money, percent, mathematics' marks, spaces
    (r"^\s*\$\$?([^$]*)\$\$?\.?\s*$", r"\1"), (r"\\[()\[\]]", ""),
    (r"\\text\{\s*\\?%\s*\}|\\?%", r"\\%"),
    (r"^\s*([-+]?)\s*\\?\$\s*([\d.,]+)\s*$", r"\1\2 \\text{dollar}"), (r"\\?[$£€]", ""),
    (r"\s+(?=[_^])", ""), (r"\s+", " "), (r"([_^])(\d) ", r"\1{\2} "),
)]  # fmt: skip
_TRIGONOMETRY = re.compile(r"\\(?:arc)?(?:sin|cos|tan|cot|sec|csc)")


def clean(text: str) -> str:
    """``text`` without mathematics' dress, each thing in one spelling."""
    text = text.strip().rstrip(".")
    while text[:1] == "{" and r"\choose" not in text and depths(text).index(0) == len(text) - 1:
        text = text[1:-1].strip()
    for sign, latex in _SIGNS.items():
        text = text.replace(sign, latex.replace("~", " "))
    for pattern, new in _REWRITES:
        text = pattern.sub(new, text)
    if not _TRIGONOMETRY.search(text):
        text = text.replace(r"^\circ", r"\text{deg}")
    text = text.strip().removeprefix(r"\approx").strip()
    while text.endswith((".", "。", ",", ";", ":", "\\")):
        text = text[:-1].rstrip()
    return text


def compact(text: str) -> str:
    """The normal form for comparing texts; of spaces, only those between digits are left."""
    text = re.sub(r"(?<=\d) +(?=\d)", "\0", TEXT.sub(r"\1", text))
    return re.sub(r"\{(\w)\}", r"\1", "".join(text.split()))


def depths(text: str) -> list[int]:
    """How many brackets are open behind each character, and 0 behind the end."""
    return [*accumulate((c in "([{") - (c in ")]}") for c in text), 0]
