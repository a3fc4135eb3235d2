"""Which runs collapse: onsets, counts, the verdicts they allow, and tables of methods x seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from paperlib.evaluation.collapse import FLAT_STEPS, KINDS, MIN_STEPS, PERSIST, diagnose_run
from paperlib.experiments.store import Run
from paperlib.report.cells import Cell, Column, Row, Table
from paperlib.report.table1 import provenance
from paperlib.report.verdict import FAILS, HOLDS, UNTOLD

Groups = Mapping[str, Mapping[str, Sequence[Run]]]  # group (a learning rate) -> method -> runs


def onsets(runs: Mapping[str, Sequence[Run]]) -> pd.DataFrame:
    """Every collapse of the complete runs: ``method``, ``seed``, ``kind``, ``step``, ``detail``."""
    rows = [
        (method, run.config.seed, found.kind, found.onset, str(found))
        for method, of_method in runs.items()
        for run in of_method
        if run.status() == "complete"
        for found in diagnose_run(run.metrics())
    ]
    return pd.DataFrame(rows, columns=["method", "seed", "kind", "step", "detail"])


def count(runs: Sequence[Run], kinds: Sequence[str] = KINDS) -> tuple[int, int]:
    """In how many runs one of ``kinds`` occurs, and how many are complete and long enough."""
    told = [run.metrics() for run in runs if run.status() == "complete"]
    told = [metrics for metrics in told if len(metrics) >= MIN_STEPS]
    return sum(any(c.kind in kinds for c in diagnose_run(m)) for m in told), len(told)


def tally(who: str, counted: tuple[int, int]) -> str:
    """ "R1: 1 of 3 runs collapse"; runs that are missing or too short are not counted."""
    if not counted[1]:
        return f"{who}: no run has the {MIN_STEPS} steps a verdict takes"
    return f"{who}: {counted[0]} of {counted[1]} runs collapse"


def occurs(counted: tuple[int, int]) -> str:
    """The verdict on "such runs collapse": in one at least; from two runs on, none refutes it."""
    collapsed, told = counted
    return HOLDS if collapsed else FAILS if told >= 2 else UNTOLD


def never(counted: tuple[int, int]) -> str:
    """The verdict on "such runs do not collapse": refuted by one; it takes two runs to hold."""
    return FAILS if counted[0] else HOLDS if counted[1] >= 2 else UNTOLD


def prevented(counted: tuple[int, int], rivals: tuple[int, int]) -> str:
    """The verdict on "such runs never collapse, the rivals do". One collapse refutes it; where
    the rivals do not collapse either, there was nothing to prevent."""
    return never(counted) if counted[0] or rivals[0] else UNTOLD


def collapse_table(groups: Groups) -> Table:
    """Methods x seeds: the step from which on each kind of collapse shows; a dash where it does
    not."""
    return Table(
        title="Step of onset of each collapse, per run",
        columns=tuple(Column(name) for name in ("steps", "final accuracy (%)", *KINDS)),
        rows=tuple(
            Row(f"{method}, seed {run.config.seed}", _cells(run), group)
            for group, methods in groups.items()
            for method, runs in methods.items()
            for run in runs
        ),
        row_headers=("Learning rate", "Run"),
        decimals=0,
        notes=(
            f"–: no such collapse; a run of fewer than {MIN_STEPS} steps is too short to tell, and "
            f"a correctness that stays flat is told after {FLAT_STEPS}. A collapse is listed also "
            "if it was over before the end.",
            "Definitions and thresholds: paperlib/evaluation/collapse.py. Final accuracy: of "
            f"training rollouts, mean of the last {PERSIST} steps.",
        ),
        footer=provenance([r for m in groups.values() for runs in m.values() for r in runs]),
    )


def _cells(run: Run) -> tuple[Cell | None, ...]:
    if run.status() != "complete":
        return (Cell(None),) * (2 + len(KINDS))
    metrics = run.metrics()
    steps = {c.kind: c.onset for c in diagnose_run(metrics)}
    accuracy = 100 * metrics["accuracy_drawn"].tail(PERSIST).mean()
    found = [Cell((steps[kind],)) if kind in steps else None for kind in KINDS]
    return (Cell((len(metrics),)), Cell((accuracy,)), *found)


def share_table(groups: Groups) -> Table:
    """How many runs of each method and group collapse, in all and by kind."""
    rows = []
    for group, methods in groups.items():
        for method, runs in methods.items():
            counts = [count(runs), *(count(runs, (kind,)) for kind in KINDS)]
            told = counts[0][1]
            cells = [Cell((told,)), Cell((100 * counts[0][0] / told,) if told else None),
                     *(Cell((k,) if told else None) for k, _ in counts[1:])]  # fmt: skip
            rows.append(Row(method, tuple(cells), group))
    return Table(
        title="Runs that collapse, by learning rate and method",
        columns=tuple(Column(name) for name in ("runs", "collapsed (%)", *KINDS)),
        rows=tuple(rows),
        row_headers=("Learning rate", "Method"),
        decimals=0,
        notes=(
            f"runs: those that are complete and have {MIN_STEPS} steps or more; the last columns "
            "count runs; a run may show several kinds.",
        ),
        footer=provenance([r for m in groups.values() for runs in m.values() for r in runs]),
    )
