"""MEDS Table 2, which feature to cluster by, from the run store."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from paperlib.experiments.recipes import eval_settings
from paperlib.experiments.rows import table2_runs
from paperlib.experiments.sizes import SIZES, short_name
from paperlib.experiments.store import Run, Store
from paperlib.report.cells import Cell, Column, Row, Table
from paperlib.report.marking import bold_max, mark_table
from paperlib.report.scores import (
    AVERAGE,
    checkpoint_score,
    columns_of,
    level_name,
    level_note,
)
from paperlib.report.table1 import provenance

__all__ = ["CLUSTERED", "last_scores", "meds_table2", "table2_runs"]

CLUSTERED = ("28-diff", "14-diff", "28", "14")  # the rows that use clusters


def layer_note(model: str) -> str:
    """What the rows are called after, and how many layers the model has."""
    name = "the tiny model" if model == "tiny" else short_name(model)
    return (
        "28 stands for all layers and 14 for their later half, after the paper's 28-layer model; "
        f"{name} has {SIZES[model].layers} layers. diff: differences of adjacent layers. Single "
        "cluster: all wrong rollouts of a prompt count as one."
    )


def last_scores(runs: Iterable[Run], k: int, level: int | str = AVERAGE) -> list[float | None]:
    """pass@k in percent on the test set at the last checkpoint of each run, None if missing."""
    runs = list(runs)
    test, validation = (
        eval_settings("meds", runs[0].config.profile, split) for split in ("test", "validation")
    )
    return [checkpoint_score(run, "last", test, validation, k, level) for run in runs]


def meds_table2(profile: str, preset: str, seeds: Sequence[int], store: Store) -> Table:
    """MEDS Table 2: pass@1 and pass@n per level and on average, mean and std over seeds."""
    runs = table2_runs(profile, preset, seeds, store)
    test = eval_settings("meds", profile, "test")
    samples = test.samples
    columns = [(level, k) for level in columns_of(test.task) for k in (1, samples)]
    rows = [
        Row(
            name if name == "DAPO" else f"MEDS-{name.lower()}",
            tuple(Cell.from_seeds(last_scores(of_row, k, level)) for level, k in columns),
        )
        for name, of_row in runs.items()
    ]
    table = Table(
        title=f"MEDS Table 2, profile {profile}, preset {preset}: pass@k in percent",
        columns=tuple(Column(f"pass@{k}", level_name(level, test.task)) for level, k in columns),
        rows=tuple(rows),
        notes=(
            layer_note(runs["DAPO"][0].config.model), level_note(test.task),
            f"Last checkpoint; pass@k: unbiased estimate from n = {samples} samples per problem at "
            "temperature 1, averaged over problems. Bold: best mean; underline: second. Mean and "
            "standard deviation (ddof 1) over seeds.",
        ),
        footer=provenance([run for of_row in runs.values() for run in of_row]),
    )
    return mark_table(table, bold_max)
