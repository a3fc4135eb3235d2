"""MEDS, Figs. 1 and 4: data frames in, what is drawn and the figures out.

Bands are +- one standard deviation over seeds unless an axis says otherwise; shares in percent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from paperlib.evaluation.exact_diversity import within_step
from paperlib.report.cells import Cell, Column, Row, Table
from paperlib.report.scores import AVERAGE, columns_of, level_name, score
from paperlib.report.style import (
    COLORS,
    GREY,
    color,
    legend_below,
    mean_band,
    panels,
    plain,
    smooth,
)
from paperlib.report.verdict import Difference, difference
from paperlib.tasks.tiny.solutions import CATEGORIES

SMOOTH = 8  # steps
SCORES = {
    "within_path": "within a step:\nsolution paths",
    "within_category": "within a step:\nerror categories",
    "across_path": "across steps:\nnew paths",
    "across_wrong_path": "across steps:\nnew wrong paths",
}

# Fig. 1


def commonest(rollouts: pd.DataFrame, among: Sequence[str]) -> str:
    """The commonest of these categories in diagnosed rollouts; of equal ones the first named."""
    counts = rollouts["category"].value_counts()
    return max(among, key=lambda name: counts.get(name, 0))


def errors(measures: pd.DataFrame, scores: pd.DataFrame, habit: str) -> Figure:
    """Fig. 1. ``measures``: ``method``, ``seed``, ``view`` ("training" or "test"), and the columns
    of ``error_measures``; ``scores``: the columns of ``diversity_scores`` and ``seed``."""
    figure, axes = panels(3, 2)
    habit = habit.replace("_", " ")
    shown = {"habit": f"{habit},\n% of wrong answers",
             "same_category": "two wrong answers to one\nprompt share a category, %"}
    for row, (measure, label) in zip(axes, shown.items(), strict=False):
        _over_training(row[0], measures, measure, label)
        _at_checkpoints(row[1], measures, measure)
        row[0].sharey(row[1])
        row[0].autoscale(axis="y")
    _over_training(axes[2, 0], measures, "path", "two rollouts of one prompt\ntake two paths, %")
    _score_dots(axes[2, 1], scores)
    legend_below(figure, axes[0, 0])
    figure.suptitle("Exact diagnosis, no LLM. Bands and bars: ± one std over seeds", fontsize=10)
    return figure


def _over_training(axes: Axes, measures: pd.DataFrame, measure: str, label: str) -> None:
    training = measures[measures["view"] == "training"]
    for method, of_method in training.groupby("method", sort=False):
        table = 100 * of_method.pivot(index="seed", columns="step", values=measure)
        curves = [smooth(row, SMOOTH) for row in table.to_numpy(dtype=float)]
        mean_band(axes, table.columns, curves, method)
    axes.set(xlabel="training step", ylabel=label)
    axes.set_title(f"training, kept groups (mean of {SMOOTH} steps)", fontsize=9)


def _at_checkpoints(axes: Axes, measures: pd.DataFrame, measure: str) -> None:
    for method, of_method in measures[measures["view"] == "test"].groupby("method", sort=False):
        table = 100 * of_method.pivot(index="seed", columns="step", values=measure)
        mean_band(axes, table.columns, table.to_numpy(dtype=float), method, marker="o", ms=4)
        axes.set_xticks(table.columns)
    axes.set(xlabel="checkpoint (step; 0 is Base)")
    axes.set_title("test set, all answers", fontsize=9)


def _score_dots(axes: Axes, scores: pd.DataFrame) -> None:
    for shift, (method, of_method) in enumerate(scores.groupby("method", sort=False)):
        x = np.arange(len(SCORES)) + 0.24 * shift - 0.12
        values = 100 * of_method[list(SCORES)].to_numpy(dtype=float)
        spread = values.std(0, ddof=1) if len(values) > 1 else None
        look = {"color": color(str(method)), "label": method}
        axes.errorbar(x, values.mean(0), spread, fmt="s", ms=5, capsize=3, **look)
        axes.plot(x + 0.08, values.T, ".", ms=4, color=look["color"], alpha=0.5)
    axes.set_xticks(range(len(SCORES)), list(SCORES.values()), fontsize=7)
    axes.set(ylabel="diversity, novelty, %", ylim=(0, 105))
    axes.set_title("diversity scores (dots: seeds)", fontsize=9)


def habit_table(groups: Mapping[str, Mapping[str, Sequence[pd.DataFrame]]], footer: Any) -> Table:
    """Every category's share, in percent: of wrong answers, and how often two are alike.

    Args:
        groups: heading -> method -> diagnosed rollouts, one frame a seed.
    """
    columns = ("wrong", *CATEGORIES, "favourite habit", "two alike: category", "two alike: answer")

    def shares(frame: pd.DataFrame) -> list[float | None]:
        wrong, alike = frame[frame["accuracy"] < 0.5], within_step(frame)
        of_wrong = [(wrong["category"] == name).mean() for name in CATEGORIES]
        favourite = (wrong["category"] == wrong["favourite"]).mean()
        pairs = [1 - alike[f"wrong_{of}"].mean() for of in ("category", "answer")]
        values = [len(wrong) / len(frame), *of_wrong, favourite, *pairs]
        return [100 * float(v) if np.isfinite(v) else None for v in values]

    rows = [
        Row(method, tuple(Cell.from_seeds(v) for v in zip(*map(shares, frames), strict=True)), name)
        for name, methods in groups.items() for method, frames in methods.items()
    ]  # fmt: skip
    return Table(
        title="What the wrong answers are, in percent (exact diagnosis, no LLM)",
        columns=tuple(Column(name.replace("_", " ")) for name in columns), rows=tuple(rows),
        row_headers=("Answers", "Method"), footer=tuple(footer),
        notes=("wrong: of all answers; categories and favourite habit: of the wrong ones; two "
               "alike: probability that two wrong answers to one prompt are of one category, or "
               "give the same answer. Mean and standard deviation (ddof 1) over seeds.",),
    )  # fmt: skip


# Fig. 4


def passk_curves(results: Mapping[str, Mapping[int, dict[str, Any]]], n: int) -> pd.DataFrame:
    """``method``, ``seed``, ``level``, ``k`` = 1 ... n and ``value`` (pass@k in percent).

    Args:
        results: method -> seed -> stored evaluation.
    """
    rows = [
        (method, seed, level, k, score(result, k, level))
        for method, seeds in results.items() for seed, result in seeds.items()
        for level in columns_of(result["settings"]["task"]) for k in range(1, n + 1)
    ]  # fmt: skip
    return pd.DataFrame(rows, columns=["method", "seed", "level", "k", "value"])


def values(curves: pd.DataFrame, method: str, k: int, level: int | str = AVERAGE) -> list[float]:
    """One method's pass@k, a value per seed."""
    rows = curves[(curves["method"] == method) & (curves["k"] == k) & (curves["level"] == level)]
    return rows.sort_values("seed")["value"].tolist()


def gap(curves: pd.DataFrame, method: str, rival: str, k: int) -> Difference | None:
    """Average pass@k, ``method - rival``, paired by seed."""
    return difference(f"{method} - {rival}, pass@{k}", values(curves, method, k),
                      values(curves, rival, k))  # fmt: skip


def crossing(curves: pd.DataFrame, method: str) -> int | None:
    """The smallest k at which Base's average pass@k is above the method's mean over seeds."""
    means = curves[curves["level"] == AVERAGE].groupby(["k", "method"])["value"].mean().unstack()
    above = means.index[means["Base"] > means[method]]
    return int(above.min()) if len(above) else None


def share_best(curves: pd.DataFrame, method: str, ks: Sequence[int]) -> list[float]:
    """Per seed, in how many percent of the cases (level or average, k) no other method is higher;
    Base's one run stands in every seed."""
    cases = curves[curves["k"].isin(ks)]
    seeds = sorted(cases[cases["method"] == method]["seed"].unique())
    out = []
    for seed in seeds:
        rows = cases[(cases["seed"] == seed) | (cases["method"] == "Base")]
        table = rows.pivot_table(index=["level", "k"], columns="method", values="value")
        out.append(float(100 * (table[method] >= table.max(axis=1)).mean()))
    return out


def passk(curves: pd.DataFrame, rivals: Sequence[str] = ("DAPO", "Base")) -> Figure:
    """Fig. 4: a panel a level, their average, and MEDS's lead over ``rivals`` with intervals."""
    levels = curves["level"].nunique()
    figure, axes = panels(levels // 2 + 1, 2)
    ks = sorted(curves["k"].unique())
    for ax, (level, of_level) in zip(axes.flat, curves.groupby("level", sort=False), strict=False):
        for method in [m for m in COLORS if m in set(of_level["method"])]:
            table = of_level[of_level["method"] == method].pivot(
                index="seed", columns="k", values="value")
            mean_band(ax, ks, table.to_numpy(), method)
        ax.set(ylabel="pass@k, %", ylim=(None, 101))
        ax.set_title(f"{plain(level_name(level))} (band: ± one std over seeds)", fontsize=9)
    for unused in axes.flat[levels:-1]:
        unused.set_axis_off()
    lead = axes[-1, 1]
    for rival in rivals:
        gaps = [gap(curves, "MEDS", rival, k) for k in ks]
        lead.plot(ks, [g.mean for g in gaps], color=color(rival), label=f"over {rival}")
        if gaps[0].low is not None:
            low, high = [g.low for g in gaps], [g.high for g in gaps]
            lead.fill_between(ks, low, high, color=color(rival), alpha=0.2, lw=0)
    lead.axhline(0, color=GREY, lw=0.8)
    lead.set(ylabel="lead of MEDS, points")
    lead.set_title("Average: MEDS less rival (band: 95 %, paired)", fontsize=9)
    lead.legend(frameon=False, fontsize=8)
    for ax in axes.flat:
        ax.set_xscale("log", base=2)
        ticks = [k for k in ks if k & (k - 1) == 0]
        ax.set_xticks(ticks, [str(k) for k in ticks])
        ax.set_xlabel("k (samples per problem)")
    legend_below(figure, axes[0, 0])
    return figure
