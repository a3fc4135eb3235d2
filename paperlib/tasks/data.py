"""Problems by data set name, checked when they are loaded.

A name is one of the tiny world's sets, one of :data:`paperlib.tasks.sources.CATALOGUE`, or the path
of a ``.jsonl`` or ``.jsonl.gz`` file. ``a+b`` joins two sets. ``name:start-stop`` takes problems
``start`` up to ``stop`` (none: to the end) of a fixed shuffle of all that stands before the colon.

How a copy of a catalogued set differs from what was catalogued is said once per process, on
standard error; ``notebooks/beyond/data.ipynb`` looks for duplicates and overlap with test sets.
"""

import hashlib
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from paperlib.errors import UserError
from paperlib.tasks import rows as reading
from paperlib.tasks.rows import Problem
from paperlib.tasks.sources import CATALOGUE, data_folder, hub_rows, local_file, origin
from paperlib.tasks.tiny.problems import SMALL, SPLITS, tiny_split

_TINY = (*SPLITS, SMALL)
_SLICE = re.compile(r"(.+):(\d+)-(\d*)")
_SPACING = re.compile(r"\\(?:quad|qquad|left|right|displaystyle)(?![a-z])|\\[,;:! ]|~")
_DELIMITERS = re.compile(r"\\[()\[\]]|[\s${}*'\"`’‘“”]")
_PUNCTUATION = re.compile(r"[.,;:?](?!\d)")


def load_problems(name: str) -> list[Problem]:
    """The problems of a data set, by name (see the module's docstring).

    Rows of catalogued sets without a gold answer are dropped and counted; in a file of your own
    they are an error. Duplicates stay, as the papers trained on them.
    """
    rows = _rows(name, _base, lambda rows, part: _cut(_shuffled(rows), part))
    return reading.check_problems(rows, name, published=True)  # your own: see _base


def problem_count(name: str) -> int:
    """How many problems ``load_problems(name)`` gives, by the catalogue's counts of the files (its
    notes tell where the hub's copy has another), without loading a catalogued set."""

    def base(name: str) -> Sequence[Any]:
        source = CATALOGUE.get(name)
        return range(source.rows - source.empty) if source else _base(name)

    return len(_rows(name, base, _cut))


def base_names(name: str) -> list[str]:
    """The sets that ``name`` joins or slices."""
    return _rows(name, lambda single: [single], lambda names, part: names)


def missing(name: str) -> list[str]:
    """What lacks here to load ``name``, one sentence a set; nothing is downloaded."""
    sources = [CATALOGUE[n] for n in base_names(name) if n in CATALOGUE]
    return [why for source in sources if (why := origin(source)[1])]


def findings(name: str) -> list[str]:
    """How what is loaded differs from what was catalogued or written, one finding a line."""
    if name in CATALOGUE:
        return _catalogued(name, data_folder())[1]
    return [f"{len(load_problems(name)):,} problems"]


def digest(problems: Iterable[Problem]) -> str:
    """16 hex digits of all (question, answer) pairs, whatever their order and white space."""
    pairs = sorted("".join(f"{p.question}\0{p.answer}".split()) for p in problems)
    return hashlib.sha256("\n".join(pairs).encode()).hexdigest()[:16]


def normal_question(text: str) -> str:
    """The question without what changes between copies of it: case, white space, LaTeX spacing and
    delimiters, braces, emphasis, and punctuation (a point or comma before a digit stays). Operators
    and parentheses stay: MATH has questions that differ in a sign alone."""
    text = _SPACING.sub("", text.casefold())
    text = text.replace("\\dfrac", "\\frac").replace("\\tfrac", "\\frac")
    return _PUNCTUATION.sub("", _DELIMITERS.sub("", text))


def _shuffled(problems: list[Problem]) -> list[Problem]:
    """In the order of a hash of the question: the same whatever the order and origin of the rows.
    Copies of a question stay together, so that a held-out part does not hold what the rest trains
    on (the seed is one with which no cut of the recipes falls between copies)."""

    def key(p: Problem) -> bytes:
        return hashlib.sha256(b"paperlib 1\0" + normal_question(p.question).encode()).digest()

    return sorted(problems, key=key)


def _rows(name: str, base: Callable[[str], Sequence], cut: Callable[[list, Any], list]) -> list:
    """Rows of a name, where ``base`` gives those of a single set and ``cut`` a part of several."""
    if not Path(name).is_file():
        if part := _SLICE.fullmatch(name):
            return cut(_rows(part[1], base, cut), part)
        if "+" in name:
            return [row for piece in name.split("+") for row in _rows(piece, base, cut)]
    return list(base(name))


def _cut(rows: list, part: re.Match[str]) -> list:
    start, stop = int(part[2]), int(part[3] or len(rows))
    if not start < stop <= len(rows):
        raise UserError(
            f"data set {part[1]!r} has {len(rows):,} problems; {start}-{stop} is no part of it"
        )
    return rows[start:stop]


def _base(name: str) -> Sequence[Problem]:
    if name in _TINY:
        return tiny_split(name)
    if name in CATALOGUE:
        return _catalogued(name, data_folder())[0]
    path = Path(name)
    if not name.endswith((".jsonl", ".jsonl.gz")):
        raise UserError(
            f"unknown data set {name!r}; valid: {', '.join((*_TINY, *CATALOGUE))}, the path of a "
            ".jsonl or .jsonl.gz file, two of these joined by +, or any with :start-stop"
        )
    if not path.is_file():
        raise UserError(f"data file {name!r} does not exist")
    own, rows = replace(reading.OWN_ROWS, name=name), reading.json_rows(path)
    problems = [reading.to_problem(str(row.get("id", n)), row, own) for n, row in rows]
    return reading.check_problems(problems, name)


@cache
def _catalogued(name: str, folder: str) -> tuple[list[Problem], list[str]]:
    """The problems, and how they differ from what was catalogued, which is also said here, once.

    ``folder`` is part of the key only.
    """
    source, fields = CATALOGUE[name], CATALOGUE[name]
    where, expected = f"{source.repository} at {source.revision}", source.hub_rows or source.rows
    if path := local_file(source):
        rows: Iterable[Mapping[str, Any]] = (row for _, row in reading.json_rows(path))
        gold = "spellings" if source.gold == "spellings" else "text"
        fields = replace(reading.OWN_ROWS, name=name, gold=gold, level=source.level and "level")
        where, expected = str(path), source.rows
    else:
        rows = hub_rows(source)
    if fields.levels:
        rows = (row for row in rows if reading.to_level(row.get(fields.level)) in fields.levels)
    found = [reading.to_problem(f"{name}-{n}", row, fields) for n, row in enumerate(rows)]
    problems = reading.check_problems([p for p in found if p.answer], name, published=True)
    empty = [p.id for p in found if not p.answer]
    damaged = [p.id for p in problems if reading.UNESCAPED.search(p.answer)]
    lines = [f"{len(problems):,} problems from {where}"]
    if len(found) != expected:
        lines.append(f"{len(found):,} rows read where the catalogue has {expected:,}")
    elif digest(problems) != source.digest:
        lines.append("other questions or answers than in the file that was catalogued")
    if empty:
        lines.append(f"{len(empty)} rows without a gold answer, dropped: {reading.some(empty)}")
    if damaged:
        what = "gold answers with a control character"
        lines.append(f"{len(damaged)} {what}, kept: {reading.some(damaged)}")
    lines += [source.note] if source.note else []
    print(*(f"data {name}: {line}" for line in lines), sep="\n", file=sys.stderr)
    return problems, lines
