"""Problems by data set name, checked when they are loaded."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from paperlib.errors import UserError


@dataclass(frozen=True)
class Problem:
    """One row of any data set; ``answer`` is the gold answer as text."""

    id: str
    question: str
    answer: str
    level: int | str | None = None
    subject: str | None = None


def load_problems(name: str) -> list[Problem]:
    """The problems of a data set: ``tiny-train``, ``tiny-small``, ``tiny-validation``,
    ``tiny-test`` or ``tiny-smoke``, or the path of a JSONL file with a :class:`Problem`'s fields.

    Raises:
        UserError: unknown name; malformed rows; rows without a gold answer (counted and named);
            the same id twice.
    """
    from paperlib.tasks.tiny.problems import SMALL, SPLITS, tiny_split

    names = (*SPLITS, SMALL)
    if name in names:
        return tiny_split(name)
    path = Path(name)
    if path.suffix != ".jsonl":
        raise UserError(
            f"unknown data set {name!r}; valid: {', '.join(names)}, or the path of a .jsonl file"
        )
    if not path.is_file():
        raise UserError(f"data file {name!r} does not exist")
    return check_problems(_read_jsonl(path), name)


def _read_jsonl(path: Path) -> list[Problem]:
    rows = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            answer = row.get("answer")
            rows.append(
                Problem(
                    id=str(row.get("id", number)),
                    question=row["question"],
                    answer="" if answer is None else str(answer),
                    level=row.get("level"),
                    subject=row.get("subject"),
                )
            )
        except (json.JSONDecodeError, KeyError, AttributeError) as error:
            raise UserError(
                f"{path}, line {number}: not a problem ({error!r}); "
                "each line is a JSON object with at least question and answer"
            ) from error
    return rows


def check_problems(problems: list[Problem], name: str) -> list[Problem]:
    """The same list, or a :class:`UserError` that counts and names what is wrong with it."""
    if not problems:
        raise UserError(f"data set {name!r} is empty")
    for what, bad in (
        ("no gold answer", [p.id for p in problems if not p.answer.strip()]),
        ("no question", [p.id for p in problems if not p.question.strip()]),
        ("an id used before", [i for i, n in Counter(p.id for p in problems).items() if n > 1]),
    ):
        if bad:
            shown = ", ".join(bad[:5]) + (", ..." if len(bad) > 5 else "")
            raise UserError(f"data set {name!r}: {len(bad)} rows with {what}: {shown}")
    return problems
