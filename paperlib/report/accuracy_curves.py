"""Memory-R+, Fig. 2: test accuracy at the checkpoints of a run, one panel a level."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from paperlib.evaluation.settings import EvalSettings
from paperlib.experiments.store import Run
from paperlib.report.scores import columns_of, level_name, score, stored_evaluation
from paperlib.report.style import legend_below, mean_band, panels, plain


def checkpoint_accuracy(
    runs: dict[str, list[Run]], base: Run, test: EvalSettings
) -> pd.DataFrame:
    """Accuracy in percent of every evaluated checkpoint; step 0 is the base model's.

    Returns:
        Columns ``method, seed, step, level`` (as in table1.columns_of) and ``accuracy``.
    """
    rows = []
    for method, of_method in runs.items():
        for run in of_method:
            for source in (base, run):
                for step, _ in source.checkpoints():
                    result = stored_evaluation(source, step, test)
                    for level in columns_of(test.task) if result else ():
                        row = (method, run.config.seed, step, level, score(result, 1, level))
                        rows.append(row)
    return pd.DataFrame(rows, columns=["method", "seed", "step", "level", "accuracy"])


def accuracy_panels(frame: pd.DataFrame) -> Figure:
    """Mean over seeds and a band of +- one standard deviation; a seed that lacks a step is out."""
    levels = frame.level.unique()
    figure, axes = panels(len(levels) // 3 + 1, 3, width=3.0, height=2.5)
    cells = [*axes.flat]
    for ax, level in zip(cells, levels, strict=False):
        for method, of_method in frame[frame.level == level].groupby("method", sort=False):
            table = of_method.pivot(index="seed", columns="step", values="accuracy").dropna()
            mean_band(ax, table.columns, table.to_numpy(), method, marker="o", markersize=3)
        ax.set(title=plain(level_name(level)), xlabel="generation step", ylabel="accuracy, %")
        ax.set_xticks(sorted(frame.step.unique()))
    for unused in cells[len(levels) :]:
        unused.set_axis_off()
    note = "band: ± 1 standard deviation\nover seeds; step 0: base model;\ntemperature 1"
    cells[-1].text(0.5, 0.5, note, ha="center", va="center", transform=cells[-1].transAxes)
    legend_below(figure, cells[0])
    return figure
