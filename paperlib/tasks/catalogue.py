"""Catalogued data sets: found in the folder or on the hub, read, and reported on."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from paperlib.errors import UserError
from paperlib.tasks.data_report import (
    DataReport,
    digest,
    duplicates,
    leakage,
    normal_question,
    rows_differing,
)
from paperlib.tasks.rows import (
    CONTROL,
    UNESCAPED,
    Problem,
    check_problems,
    json_rows,
    to_level,
    to_problem,
)
from paperlib.tasks.sources import CATALOGUE, Source

FOLDER = "PAPERLIB_DATA_DIR"  # environment variable
_TESTS = [source for source in CATALOGUE.values() if source.role == "test"]


def catalogued(name: str) -> list[Problem]:
    """The problems of a catalogued set; what is odd about it is said once per process.

    Overlap of a training set with test sets is looked for where that costs no download.

    Raises:
        UserError: the set can be had neither from the folder nor from the hub.
    """
    problems = _read(name, _folder())[0]
    _announce(name, _folder())
    return list(problems)


def catalogue_report(name: str) -> DataReport:
    """All findings about a catalogued set; of a training set also its overlap with test sets."""
    return (_report_with_leaks if CATALOGUE[name].role == "train" else _report)(name, _folder())


def with_leaks(found: DataReport, problems: Iterable[Problem]) -> DataReport:
    """The report with the overlap of ``problems`` with every test set that can be loaded here."""
    here = [s.name for s in _TESTS if not origin(s)[1]]
    tests = {name: _read(name, _folder())[0] for name in here}
    unchecked = tuple(s.name for s in _TESTS if s.name not in here)
    return replace(found, leaks=leakage(problems, tests), unchecked=unchecked)


def origin(source: Source) -> tuple[str, str]:
    """(where the set would come from, "") or ("", what lacks)."""
    if path := _file(source):
        return str(path), ""
    lacks = f"{source.name}: no {source.file} in {os.environ.get(FOLDER) or f'${FOLDER} (unset)'}"
    if source.repository is None:
        return "", f"{lacks}, and no hub repository has it"
    found, how = _hub_state(source.repository)
    where = f"{source.repository} at {source.revision[:8]}"
    return (f"{where} ({how})", "") if found else ("", f"{lacks}, and {where}: {how}")


def _folder() -> str:
    folder = os.environ.get(FOLDER, "")
    if folder and not Path(folder).is_dir():
        raise UserError(f"{FOLDER} is {folder!r}; it must name a folder of .jsonl files")
    return folder


def _file(source: Source) -> Path | None:
    stem = source.file.removesuffix(".gz")
    paths = [Path(_folder(), stem), Path(_folder(), stem + ".gz")]
    return next((p for p in paths if _folder() and p.is_file()), None)


@cache
def _read(name: str, folder: str) -> tuple[tuple[Problem, ...], tuple[str, ...], str]:
    """(problems, ids of rows without a gold answer, origin). ``folder`` is part of the key only."""
    source = CATALOGUE[name]
    if path := _file(source):
        rows: Iterable[Mapping[str, Any]] = (row for _, row in json_rows(path))
        gold = "spellings" if source.gold == "spellings" else "text"
        source = replace(source, question="question", answer="answer", gold=gold, levels=(),
                         level=source.level and "level", subject="subject")  # fmt: skip
    else:
        rows = _hub_rows(source)
    kept = (r for r in rows if not source.levels or to_level(r.get(source.level)) in source.levels)
    problems = [to_problem(f"{name}-{number}", row, source) for number, row in enumerate(kept)]
    return (
        tuple(check_problems([p for p in problems if p.answer], name, published=True)),
        tuple(p.id for p in problems if not p.answer),
        str(path) if path else f"{source.repository} at {source.revision}",
    )


def _hub_rows(source: Source) -> Iterable[Mapping[str, Any]]:
    ways = f"set {FOLDER} to a folder with {source.file} (fields question and answer)"
    if source.repository is None:
        raise UserError(f"data set {source.name!r} is in no hub repository; {ways}")
    try:
        from datasets import load_dataset

        return load_dataset(
            source.repository, source.config, split=source.split, revision=source.revision
        )
    except Exception as error:  # of datasets, of the hub's client, of the network
        reason = (str(error).splitlines() or [""])[0]
        raise UserError(
            f"data set {source.name!r}: {source.repository} at {source.revision} cannot be loaded "
            f"from the hub ({type(error).__name__}: {reason}); go online, or {ways}"
        ) from error


def findings(
    name: str, where: str, rows: int, expected: int, problems: Sequence[Problem], **more: Any
) -> DataReport:
    """What the problems themselves show; ``more`` are further fields of the report."""
    return DataReport(
        name=name, origin=where, rows=rows, expected=expected, problems=len(problems),
        exact=duplicates(problems),
        spelt=duplicates(problems, lambda p: normal_question(p.question)),
        damaged=sum(bool(CONTROL.search(p.question)) for p in problems),
        damaged_golds=tuple(p.id for p in problems if UNESCAPED.search(p.answer)),
        **more,
    )  # fmt: skip


@cache
def _report(name: str, folder: str) -> DataReport:
    source = CATALOGUE[name]
    problems, empty, where = _read(name, folder)
    expected = source.rows if _file(source) else source.hub_rows or source.rows
    other = None
    if source.other_key and _file(CATALOGUE[source.other_key]):
        golds = {normal_question(p.question): p for p in _read(source.other_key, folder)[0]}
        pairs = [(p, golds[q]) for p in problems if (q := normal_question(p.question)) in golds]
        differ = sum(a.answer.split() != b.answer.split() for a, b in pairs)
        other = (source.other_key, len(pairs), differ)
    return findings(
        name, where, len(problems) + len(empty), expected, problems, empty=empty, other_key=other,
        differing=rows_differing(digest(problems), source.digest), note=source.note,
    )  # fmt: skip


@cache
def _report_with_leaks(name: str, folder: str) -> DataReport:
    return with_leaks(_report(name, folder), _read(name, folder)[0])


@cache
def _announce(name: str, folder: str) -> None:
    cheap = all(map(_file, _TESTS))
    found = catalogue_report(name) if cheap else _report(name, folder)
    print(*(f"data {name}: {line}" for line in found.lines()), sep="\n", file=sys.stderr)


@cache
def _hub_state(repository: str) -> tuple[bool, str]:
    """Whether a data repository of the hub can be had, and how or why not."""
    from huggingface_hub import constants

    folder = Path(constants.HF_HUB_CACHE, f"datasets--{repository.replace('/', '--')}", "snapshots")
    if folder.is_dir():
        return True, "in the hub's cache"
    if why := hub_unreachable():
        return False, f"not cached, and {why}"
    return True, "to be downloaded"


@cache
def hub_unreachable() -> str:
    """Why the hub cannot be reached from here, "" if it can; asked once, at most 5 seconds."""
    from huggingface_hub import constants, get_session

    if constants.HF_HUB_OFFLINE:
        return "HF_HUB_OFFLINE is set"
    try:
        get_session().head(constants.ENDPOINT, timeout=5)
    except Exception as error:  # of the HTTP library in use, of a proxy, of the network
        return f"{constants.ENDPOINT} cannot be reached ({type(error).__name__})"
    return ""
