"""MEDS Table 2, which feature to cluster by, from the run store."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from paperlib.experiments.recipes import eval_settings
from paperlib.experiments.store import Run, Store
from paperlib.experiments.variants import FEATURES, TINY_LAYERS, feature_variant
from paperlib.report.cells import Cell, Column, Row, Table
from paperlib.report.marking import bold_max, mark_table
from paperlib.report.table1 import (
    AVERAGE,
    LEVEL_NOTE,
    LEVELS,
    checkpoint_score,
    level_name,
    provenance,
)

ROWS = ("DAPO", *FEATURES)
CLUSTERED = ("28-diff", "14-diff", "28", "14")  # the rows that use clusters
LAYER_NOTE = (
    f"28 stands for all layers and 14 for their later half, after the paper's 28-layer model; the "
    f"tiny model has {TINY_LAYERS} layers. diff: differences of adjacent layers. Single cluster: "
    "all wrong rollouts of a prompt count as one."
)


def table2_runs(
    profile: str, preset: str, seeds: Sequence[int], store: Store
) -> dict[str, list[Run]]:
    """The runs of each row of :data:`ROWS`, one per seed, whether they exist yet or not."""
    return {
        name: [store.run(feature_variant(name, profile, seed, preset)) for seed in seeds]
        for name in ROWS
    }


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
    samples = eval_settings("meds", profile, "test").samples
    columns = [(level, k) for level in (*LEVELS, AVERAGE) for k in (1, samples)]
    rows = [
        Row(
            name if name == "DAPO" else f"MEDS-{name.lower()}",
            tuple(Cell.from_seeds(last_scores(of_row, k, level)) for level, k in columns),
        )
        for name, of_row in runs.items()
    ]
    table = Table(
        title=f"MEDS Table 2, profile {profile}, preset {preset}: pass@k in percent",
        columns=tuple(Column(f"pass@{k}", level_name(level)) for level, k in columns),
        rows=tuple(rows),
        notes=(
            LAYER_NOTE, LEVEL_NOTE,
            f"Last checkpoint; pass@k: unbiased estimate from n = {samples} samples per problem at "
            "temperature 1, averaged over problems. Bold: best mean; underline: second. Mean and "
            "standard deviation (ddof 1) over seeds.",
        ),
        footer=provenance([run for of_row in runs.values() for run in of_row]),
    )
    return mark_table(table, bold_max)
