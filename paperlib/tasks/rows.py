"""What a problem is, how a row of a file or of the hub becomes one, and which can be asked."""

import codecs
import gzip
import json
import math
import re
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from numbers import Integral, Real
from pathlib import Path
from typing import Any

from paperlib.errors import UserError
from paperlib.tasks.grading import find_answer, gold_answer
from paperlib.tasks.sources import Source

OWN_ROWS = Source("", "", 0, "", "", level="level")  # whose fields are those of a Problem
CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f]")
# What JSON makes of a single backslash, as in \frac, \beta, \times, \right, \neq.
UNESCAPED = re.compile(CONTROL.pattern + r"|[\t\r](?=[a-z])|\n(?=(?:eq|abla|otin)(?![a-z]))")
_LISTED = re.compile(r"""\[\s*(['"])(.*?)\1\s*(,.*)?\]""", re.DOTALL)  # a list, printed as text
_FRAME = re.compile(r"\\(?:boxed|fbox|text)(?![a-z])|[\s{}$]")  # what holds an answer and is none
_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class Problem:
    """One row of any data set; ``answer`` is the gold answer as text."""

    id: str
    question: str
    answer: str
    level: int | str | None = None
    subject: str | None = None


def to_problem(problem_id: str, row: Mapping[str, Any], source: Source) -> Problem:
    """The row's problem, by the fields that the source names."""
    where = f"data set {source.name!r}, row {problem_id}"
    if source.question not in row:
        raise UserError(f"{where} has no field {source.question!r}; it has {', '.join(row)}")
    answer = _gold(row.get(source.answer), source.gold)
    if answer is None:
        raise UserError(
            f"{where}: the gold answer is {row[source.answer]!s:.80}; "
            "valid: one text (LaTeX, for instance) or one finite number"
        )
    level = to_level(row.get(source.level)) if source.level else None
    return Problem(problem_id, row[source.question], answer, level, row.get(source.subject))


def check_problems(
    problems: list[Problem], name: str, *, published: bool = False
) -> list[Problem]:
    """The same list, or a :class:`UserError` that counts and names what is wrong with it. In a
    ``published`` set gold answers with a control character stay, as the papers trained on them."""
    if not problems:
        raise UserError(f"data set {name!r} is empty")
    uses = Counter(p.id for p in problems)
    flawed: dict[str, list[str]] = {}
    for p in problems:
        if what := _flaw(p, published) or "an id used before" * (uses[p.id] > 1):
            flawed.setdefault(what, []).append(str(p.id))
    for what, ids in flawed.items():  # half a character may stand in an id
        shown = some(list(dict.fromkeys(ids))).encode(errors="backslashreplace").decode()
        raise UserError(f"data set {name!r}: {len(set(ids))} rows with {what}: {shown}")
    return problems


def some(items: Sequence[str], most: int = 5) -> str:
    """The first items, for a message."""
    return ", ".join(items[:most]) + (", ..." if len(items) > most else "")


def _flaw(p: Problem, published: bool) -> str:
    """What keeps a problem from being asked or graded, "" if nothing does."""
    if not all(isinstance(text, str) for text in (p.id, p.question, p.answer)):
        return "an id, question or gold answer that is not a text"
    if _SURROGATE.search(f"{p.id}{p.question}{p.answer}{p.level}{p.subject}"):
        return "half a character, such as \\ud83d alone"
    if not published and UNESCAPED.search(p.answer):
        return "a control character in the gold answer (JSON needs \\\\frac for \\frac)"
    if not _FRAME.sub("", gold_answer(p.answer)):
        return "no gold answer"
    return "" if p.question.strip() else "no question"


def _gold(value: Any, kind: str) -> str | None:
    """The gold answer of a row's field, "" if there is none, None if it cannot be one. A list of
    one text is that text; of several "spellings" the first counts."""
    if isinstance(value, list) and (len(value) < 2 or kind == "spellings"):
        value = value[0] if value else None
    if isinstance(value, Real | Decimal) and not isinstance(value, bool):
        if not isinstance(value, Integral) and not math.isfinite(value):
            return None
        value = format(Decimal(str(value or 0)), "f")  # as it was written, not 1e+22
        value = value.rstrip("0").rstrip(".") if "." in value else value
    text = "" if value is None else value
    if not isinstance(text, str):
        return None
    if kind == "hashes":
        text = text.rpartition("####")[2].replace(",", "") if "####" in text else ""
    elif kind == "box":  # of a worked solution; of several the last alone, unlike in a completion
        start, end = find_answer(text) or (0, 0)
        text = text[len(text[:start].rstrip()) : end]
    elif listed := _LISTED.fullmatch(text.strip()):
        if listed[3] and kind != "spellings":
            return None
        text = listed[2].replace("\\\\", "\\")
    return text if UNESCAPED.search(text) else text.strip()  # what became of a backslash stays


def to_level(value: Any) -> int | str | None:
    """A level as a number, where it is one; MATH writes "Level 3" and, of two, "Level ?"."""
    if isinstance(value, str) and (match := re.fullmatch(r"Level (\d+|\?)", value)):
        return None if match[1] == "?" else int(match[1])
    return float(value) if isinstance(value, Decimal) else value


def json_rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line number from 1, row). Lines end in a newline and nothing else: GSM8K has a question
    with a Unicode line separator in it, at which ``str.splitlines`` would cut."""
    opened = gzip.open if path.suffix == ".gz" else open
    number = 0
    try:
        with opened(path, "rb") as file:
            for number, line in enumerate(file, start=1):
                if text := line.removeprefix(codecs.BOM_UTF8).strip():
                    row = json.loads(text, parse_float=Decimal)
                    if not isinstance(row["question"], str):
                        raise TypeError("question is not a text")
                    yield number, row
    except (ValueError, KeyError, TypeError, EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise UserError(
            f"{path}, line {number}: not a problem ({error!r}); "
            "each line is a JSON object with at least question and answer"
        ) from error
