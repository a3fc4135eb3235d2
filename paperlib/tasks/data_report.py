"""What is odd about a data set: counts, duplicates, damage, and overlap with test sets."""

from __future__ import annotations

import hashlib
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from paperlib.tasks.data import Problem

PARTS = 16  # of a digest
_SPACING = re.compile(r"\\(?:quad|qquad|left|right|displaystyle)(?![a-z])|\\[,;:! ]|~")
_DELIMITERS = re.compile(r"\\[()\[\]]|[\s${}*'\"`’‘“”]")
_PUNCTUATION = re.compile(r"[.,;:?](?!\d)")


@lru_cache(maxsize=2**16)  # all of the catalogue: each is asked for several times
def normal_question(text: str) -> str:
    """The question without what changes between copies of it: case, white space, LaTeX spacing and
    delimiters, braces, emphasis, and punctuation (a point or comma before a digit stays).

    Operators and parentheses stay: MATH has questions that differ in a sign alone.
    """
    text = _SPACING.sub("", text.casefold())
    text = text.replace("\\dfrac", "\\frac").replace("\\tfrac", "\\frac")
    return _PUNCTUATION.sub("", _DELIMITERS.sub("", text))


def leakage(
    train: Iterable[Problem], tests: Mapping[str, Iterable[Problem]]
) -> dict[str, list[tuple[str, str]]]:
    """Per test set the (training id, test id) pairs whose questions are the same up to spelling.

    Test sets without any are left out.
    """
    asked = [(p.id, normal_question(p.question)) for p in train]
    pairs: dict[str, list[tuple[str, str]]] = {}
    for name, problems in tests.items():
        ids = defaultdict(list)
        for p in problems:
            ids[normal_question(p.question)].append(p.id)
        found = [(i, test_id) for i, question in asked for test_id in ids.get(question, ())]
        if found:
            pairs[name] = found
    return pairs


def digest(problems: Iterable[Problem]) -> str:
    """64 hex digits over all (question, answer) pairs, whatever their order and white space.

    They are PARTS parts of 4 digits: a question falls into one part, so that the parts which
    differ between two copies tell about how many rows do (:func:`rows_differing`).
    """
    parts: list[list[bytes]] = [[] for _ in range(PARTS)]
    for p in problems:
        question, answer = ("".join(text.split()).encode() for text in (p.question, p.answer))
        part = hashlib.sha256(question).digest()[0] % PARTS
        parts[part].append(hashlib.sha256(question + b"\0" + answer).digest())
    return "".join(hashlib.sha256(b"".join(sorted(rows))).hexdigest()[:4] for rows in parts)


def rows_differing(one: str, other: str) -> tuple[int, bool]:
    """About how many rows differ between copies with these digests, and whether it is only a
    lower bound (every part differs)."""
    changed = sum(one[i : i + 4] != other[i : i + 4] for i in range(0, 4 * PARTS, 4))
    if changed == PARTS:
        return round(PARTS * math.log(PARTS)), True
    return round(-PARTS * math.log(1 - changed / PARTS)), False  # balls thrown into PARTS boxes


@dataclass(frozen=True)
class Duplicates:
    """Questions that a set asks more than once."""

    repeats: int  # rows that repeat an earlier question and answer
    conflicts: tuple[tuple[str, ...], ...]  # ids, per question with more than one answer


def duplicates(problems: Sequence[Problem], key=lambda p: p.question) -> Duplicates:
    """Repeats and conflicts among problems whose ``key`` is the same."""
    groups: dict[str, list[Problem]] = defaultdict(list)
    for p in problems:
        groups[key(p)].append(p)
    answers = [len({p.answer for p in group}) for group in groups.values()]
    return Duplicates(
        repeats=len(problems) - sum(answers),
        conflicts=tuple(
            tuple(p.id for p in group)
            for group, n in zip(groups.values(), answers, strict=True)
            if n > 1
        ),
    )


@dataclass(frozen=True)
class DataReport:
    """The findings about one data set; ``lines()`` says them."""

    name: str
    origin: str  # the file, or repository and revision
    rows: int  # read
    expected: int  # according to the catalogue
    problems: int  # kept
    exact: Duplicates  # same text
    spelt: Duplicates  # same up to spelling, those of the same text included
    damaged: int  # questions with a control character, where "\\f" of "\\frac" was unescaped
    damaged_golds: tuple[str, ...] = ()  # ids of problems whose gold answer has one
    empty: tuple[str, ...] = ()  # ids of rows without a gold answer, which are dropped
    differing: tuple[int, bool] = (0, False)  # rows unlike the catalogued: see rows_differing
    other_key: tuple[str, int, int] | None = None  # (set, shared questions, other answers)
    note: str = ""
    leaks: Mapping[str, Sequence[tuple[str, str]]] = field(default_factory=dict)
    unchecked: tuple[str, ...] | None = None  # test sets not compared; None: no comparison made

    def lines(self) -> list[str]:
        """One finding a line, with counts."""
        out = [f"{self.problems:,} problems from {self.origin}"]
        if self.rows != self.expected:
            out.append(f"{self.rows:,} rows read where the catalogue has {self.expected:,}")
        count, least = self.differing
        if count:
            out.append(f"{'more than' if least else 'about'} {count} rows differ from the "
                       "catalogued questions and answers")  # fmt: skip
        if self.empty:
            out.append(f"{len(self.empty)} rows without a gold answer, dropped: "
                       + _some(self.empty))  # fmt: skip
        if self.exact.repeats:
            out.append(f"{self.exact.repeats:,} rows repeat an earlier question and answer, kept")
        if self.exact.conflicts:
            out.append(f"{len(self.exact.conflicts)} questions with conflicting answers, kept: "
                       + _some(["/".join(ids) for ids in self.exact.conflicts], 20))  # fmt: skip
        if self.spelt != self.exact:
            out.append(f"up to spelling: {self.spelt.repeats:,} repeats, "
                       f"{len(self.spelt.conflicts)} questions with several answers")  # fmt: skip
        if self.damaged:
            out.append(f"{self.damaged} questions with a control character (\\f of \\frac), kept")
        if self.damaged_golds:
            out.append(f"{len(self.damaged_golds)} gold answers with a control character, kept: "
                       + _some(self.damaged_golds))  # fmt: skip
        if self.other_key:
            name, shared, other = self.other_key
            out.append(f"{other} of the {shared} questions shared with {name} have another answer "
                       "text there")  # fmt: skip
        out += [
            f"rows with a question of {name}: {len({a for a, _ in pairs})} "
            f"({len({b for _, b in pairs})} of its questions)"
            for name, pairs in self.leaks.items()
        ]
        if self.unchecked == () and not self.leaks:
            out.append("no question of a test set")
        elif self.unchecked:
            out.append(f"not compared with {', '.join(self.unchecked)}: not here")
        return out + ([self.note.strip()] if self.note else [])


def _some(items: Sequence[str], most: int = 5) -> str:
    return ", ".join(items[:most]) + (", ..." if len(items) > most else "")
