"""Problems by data set name, checked when they are loaded.

A name is one of the tiny world's sets, one of :data:`paperlib.tasks.sources.CATALOGUE`, or the path
of a ``.jsonl`` or ``.jsonl.gz`` file. ``a+b`` joins two sets. ``name:start-stop`` takes problems
``start`` up to ``stop`` (none: to the end) of a fixed shuffle of all that stands before the colon.

Catalogued sets come from the folder that the environment variable ``PAPERLIB_DATA_DIR`` names, if
it has the file, else from the hub at a pinned revision. What is odd about a set is said once per
process, on standard error.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace
from pathlib import Path

from paperlib.errors import UserError
from paperlib.tasks.catalogue import (
    catalogue_report,
    catalogued,
    findings,
    origin,
    with_leaks,
)
from paperlib.tasks.data_report import DataReport, normal_question
from paperlib.tasks.rows import OWN_ROWS, Problem, check_problems, json_rows, to_problem
from paperlib.tasks.sources import CATALOGUE

_SLICE = re.compile(r"(.+):(\d+)-(\d*)")


def load_problems(name: str) -> list[Problem]:
    """The problems of a data set, by name (see the module's docstring).

    Rows of catalogued sets without a gold answer are dropped and counted; in a file of your own
    they are an error. Duplicates stay, as the papers trained on them.

    Raises:
        UserError: unknown name; a set that can be had neither from the folder nor from the hub; a
            slice beyond the end; malformed rows; the same id twice.
    """
    return check_problems(_load(name), name, published=True)  # own files: see _load


def problem_count(name: str) -> int:
    """How many problems ``load_problems(name)`` gives, without loading a catalogued set.

    It is the count of the catalogued files, the same everywhere; the notes of the catalogue tell
    where the hub's copy has another.
    """
    if part := _part(name):
        whole, start, stop = part
        count = problem_count(whole)
        return len(range(count)[_within(whole, count, start, stop)])
    if len(pieces := _pieces(name)) > 1:
        return sum(map(problem_count, pieces))
    if source := CATALOGUE.get(name):
        return source.rows - source.empty
    return len(_load(name))


def base_names(name: str) -> list[str]:
    """The sets that ``name`` joins or slices."""
    if part := _part(name):
        return base_names(part[0])
    pieces = _pieces(name)
    return [name] if len(pieces) == 1 else [n for piece in pieces for n in base_names(piece)]


def missing(name: str) -> list[str]:
    """What lacks here to load ``name``, one sentence a set; nothing is downloaded."""
    sources = [CATALOGUE[n] for n in base_names(name) if n in CATALOGUE]
    return [why for source in sources if (why := origin(source)[1])]


def report(name: str) -> DataReport:
    """All findings about a set; also its overlap with test sets, unless it is one itself.

    Raises:
        UserError: as :func:`load_problems`.
    """
    if name in CATALOGUE:
        return catalogue_report(name)
    problems = load_problems(name)
    return with_leaks(findings(name, name, len(problems), problem_count(name), problems), problems)


def _load(name: str) -> list[Problem]:
    if part := _part(name):
        whole, start, stop = part
        problems = _shuffled(_load(whole))
        return problems[_within(whole, len(problems), start, stop)]
    if len(pieces := _pieces(name)) > 1:
        return [p for piece in pieces for p in _load(piece)]
    from paperlib.tasks.tiny.problems import SMALL, SPLITS, tiny_split

    tiny = (*SPLITS, SMALL)
    if name in tiny:
        return tiny_split(name)
    if name in CATALOGUE:
        return catalogued(name)
    path = Path(name)
    if not name.endswith((".jsonl", ".jsonl.gz")):
        raise UserError(
            f"unknown data set {name!r}; valid: {', '.join((*tiny, *CATALOGUE))}, the path of a "
            ".jsonl or .jsonl.gz file, two of these joined by +, or any with :start-stop"
        )
    if not path.is_file():
        raise UserError(f"data file {name!r} does not exist")
    own, rows = replace(OWN_ROWS, name=name), json_rows(path)
    problems = [to_problem(str(row.get("id", number)), row, own) for number, row in rows]
    return check_problems(problems, name)


def _part(name: str) -> tuple[str, int, int | None] | None:
    match = _SLICE.fullmatch(name)
    if not match or Path(name).is_file():
        return None
    whole, start, stop = match.groups()
    return whole, int(start), int(stop) if stop else None


def _pieces(name: str) -> list[str]:
    return [name] if Path(name).is_file() else name.split("+")


def _within(name: str, count: int, start: int, stop: int | None) -> slice:
    stop = count if stop is None else stop
    if not start < stop <= count:
        raise UserError(
            f"data set {name!r} has {count:,} problems; {start}-{stop} is no part of it"
        )
    return slice(start, stop)


def _shuffled(problems: list[Problem]) -> list[Problem]:
    """In the order of a hash of the question: the same whatever the order and origin of the rows.

    Copies of a question stay together, so that a held-out part does not hold what the rest trains
    on (the seed is one with which no cut of the recipes falls between copies).
    """

    def key(p: Problem) -> bytes:
        return hashlib.sha256(b"paperlib 1\0" + normal_question(p.question).encode()).digest()

    return sorted(problems, key=key)
