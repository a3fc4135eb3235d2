"""How a row of a file or of the hub becomes a problem."""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paperlib.errors import UserError
from paperlib.tasks.sources import Source

_BOX = re.compile(r"\\(?:boxed|fbox)\s*")
_LISTED = re.compile(r"""\[\s*(['"])(.*?)\1\s*(?:,.*)?\]""", re.DOTALL)  # a list, printed as text


@dataclass(frozen=True)
class Problem:
    """One row of any data set; ``answer`` is the gold answer as text."""

    id: str
    question: str
    answer: str
    level: int | str | None = None
    subject: str | None = None


def to_problem(problem_id: str, row: Mapping[str, Any], source: Source) -> Problem:
    """The row's problem, by the fields that the source names.

    Raises:
        UserError: the row has no field for the question.
    """
    try:
        return Problem(
            id=problem_id,
            question=row[source.question],
            answer=_gold(row.get(source.answer), source.gold),
            level=to_level(row.get(source.level)) if source.level else None,
            subject=row.get(source.subject or "subject"),
        )
    except KeyError as error:
        raise UserError(
            f"row {problem_id} has no field {error}; it has {', '.join(row)}"
        ) from error


def _gold(value: Any, kind: str) -> str:
    """The gold answer of a row's field, "" if there is none."""
    if isinstance(value, list):
        value = value[0] if value else None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    text = "" if value is None else str(value).strip()
    if kind == "hashes":
        return text.rpartition("####")[2].strip().replace(",", "") if "####" in text else ""
    if kind == "box":
        return last_box(text)
    listed = _LISTED.fullmatch(text)
    return listed[2].replace("\\\\", "\\").strip() if listed else text


def last_box(text: str) -> str:
    """What the last ``\\boxed`` or ``\\fbox`` of a worked solution holds, "" if nothing.

    Unlike grading, which reads boxes side by side as one answer, MATH's golds are the last alone.
    """
    _, found, rest = _BOX.sub("\0", text).rpartition("\0")
    if not found or not rest.startswith("{"):  # without braces TeX boxes a single token
        return rest[:1] if found and rest[:1].isalnum() else ""
    depth = 0
    for end, char in enumerate(rest):
        if char in "{}" and rest[end - 1] != "\\":
            depth += 1 if char == "{" else -1
            if not depth:
                return rest[1:end].strip()
    return ""


def to_level(value: Any) -> int | str | None:
    """A level as a number, where it is one; MATH writes "Level 3" and, of two, "Level ?"."""
    if isinstance(value, str) and (match := re.fullmatch(r"Level (\d+|\?)", value)):
        return None if match[1] == "?" else int(match[1])
    return value


def json_rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line number from 1, row). Lines end in a newline and nothing else: GSM8K has a question
    with a Unicode line separator in it, at which ``str.splitlines`` would cut."""
    opened = gzip.open if path.suffix == ".gz" else open
    number = 0
    try:
        with opened(path, "rb") as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    row = json.loads(line)
                    if not isinstance(row["question"], str):
                        raise TypeError("question is not a text")
                    yield number, row
    except (ValueError, KeyError, TypeError, EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise UserError(
            f"{path}, line {number}: not a problem ({error!r}); "
            "each line is a JSON object with at least question and answer"
        ) from error
