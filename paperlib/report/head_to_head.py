"""Both papers' methods side by side: measures of runs, paired differences, two figures of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy import stats

from paperlib.evaluation.collapse import verdict
from paperlib.evaluation.diversity import pairwise_diversity, tfidf_vectors
from paperlib.evaluation.exact_diversity import pair_diversity, solution_path
from paperlib.evaluation.settings import EvalSettings
from paperlib.experiments.store import Run
from paperlib.report.style import COLORS, GREY, INK, color, panels
from paperlib.report.table1 import last_result, provenance, score
from paperlib.report.tables import Cell, Column, Row, Table
from paperlib.report.verdict import HOLDS, UNTOLD, Difference, difference

# Each family's base method, and all (method, rival) that are compared: within a family against
# its base, and each crossover against the method whose reward it brings face to face.
BASES = {
    "R1": ("Cosine", "Memory-R", "Memory-R+", "R1 + MEDS penalty"),
    "DAPO": ("GRPO", "GRPO w/ Entropy Adv", "MEDS", "DAPO + Memory-R+ terms"),
}
CROSSOVERS = (("R1 + MEDS penalty", "Memory-R+"), ("DAPO + Memory-R+ terms", "MEDS"))
PAIRS = (*((m, base) for base, family in BASES.items() for m in family), *CROSSOVERS)
SECONDS = ("seconds/sample", "seconds/terms", "seconds/update")
COST, COST_CHANGE = "seconds per step", "cost against base, %"


def pass_ks(settings: EvalSettings) -> list[int]:
    """The k of pass@k that are shown: 1, 4 and the number of samples."""
    return sorted({1, min(4, settings.samples), settings.samples})


def measures(run: Run, settings: EvalSettings) -> dict[str, float] | None:
    """What one run is worth at its last checkpoint; None while run or evaluation is missing.

    ``pass@k`` in percent, averaged over levels; ``TF-IDF diversity`` and ``path diversity`` (share
    of pairs of a problem's responses that write other equations), x 100; ``truncated``, %;
    ``length``, tokens; of the training (Base: NaN) ``collapsed``, 100 or 0, NaN for too short a
    run (:mod:`paperlib.evaluation.collapse`), and ``seconds per step`` without checkpoints.
    """
    result = last_result(run, settings)
    if result is None:
        return None
    problems, n = result["problems"], settings.samples
    texts = [text for p in problems for text in p["responses"]]
    vectors = tfidf_vectors(texts).reshape(len(problems), n, -1)
    paths = [pair_diversity([solution_path(t) for t in p["responses"]]) for p in problems]
    metrics = run.metrics()
    fate = verdict(metrics)
    return {
        **{f"pass@{k}": score(result, k) for k in pass_ks(settings)},
        "TF-IDF diversity": float(pairwise_diversity(vectors).mean()),
        "path diversity": 100 * float(np.mean(paths)),
        "truncated": 100 * sum(p["truncated"] for p in problems) / len(texts),
        "length": float(np.mean([p["mean_length"] for p in problems])),
        "collapsed": np.nan if fate == "too short" else 100.0 * (fate == "collapsed"),
        COST: float(metrics[list(SECONDS)].sum(axis=1).mean()) if len(metrics) else np.nan,
    }


def measure_frame(runs: Mapping[str, Sequence[Run]], settings: EvalSettings) -> pd.DataFrame:
    """``method``, ``seed`` and the :func:`measures` of every run that has them, a row a run."""
    rows = [
        {"method": method, "seed": run.config.seed, **found}
        for method, of_method in runs.items()
        for run in of_method
        if (found := measures(run, settings)) is not None
    ]
    return pd.DataFrame(rows)


def relative_cost(frame: pd.DataFrame) -> pd.Series:
    """Cost of a step over that of the family's base with the same seed, less 1, in percent."""
    base_of = {method: base for base, family in BASES.items() for method in (base, *family)}
    cost = frame.set_index(["method", "seed"])[COST]
    base = [cost.get((base_of.get(m, ""), s), np.nan) for m, s in cost.index]
    return pd.Series(100 * (cost.to_numpy() / np.array(base, dtype=float) - 1), index=frame.index)


def seed_values(
    frame: pd.DataFrame, method: str, metric: str, seeds: Iterable[int]
) -> list[float | None]:
    """One value per seed, None where it is missing; what :func:`difference` takes."""
    rows = frame[frame["method"] == method].set_index("seed")[metric].dropna().to_dict()
    return [rows.get(seed) for seed in seeds]


def gap(frame: pd.DataFrame, method: str, rival: str, metric: str, **how: Any) -> Difference | None:
    """``method - rival`` in a metric, paired by seed; None if no seed has both."""
    seeds = sorted(frame["seed"].unique())
    values = [seed_values(frame, name, metric, seeds) for name in (method, rival)]
    return difference(f"{method} - {rival}, {metric}", *values, **how)


def matters(found: Difference | None) -> str:
    """The verdict on "this makes a difference": holds where the interval excludes 0, in either
    direction; one that does not shows no absence of a difference."""
    return UNTOLD if found is None or found.verdict == "cannot be told" else HOLDS


def p_value(found: Difference) -> float:
    """Two-sided p of the paired t-test behind a difference; NaN for one seed, and for seeds that
    all differ by the same, whose spread is not known."""
    if found.low is None or found.high is None or found.high - found.low < 1e-9:
        return float("nan")
    half = (found.high - found.low) / 2
    error = half / stats.t.ppf(0.975, found.seeds - 1)
    return float(2 * stats.t.sf(abs(found.mean) / error, found.seeds - 1))


def holm(p: Sequence[float]) -> np.ndarray:
    """Holm's step-down adjusted p-values ``[n]``; NaN stays NaN and is not counted."""
    values = np.asarray(p, dtype=float)
    order = np.argsort(values)[: np.isfinite(values).sum()]
    adjusted = np.full(len(values), np.nan)
    factors = len(order) - np.arange(len(order))
    adjusted[order] = np.minimum(np.maximum.accumulate(values[order] * factors), 1.0)
    return adjusted


def compare(
    frame: pd.DataFrame, pairs: Iterable[tuple[str, str]], metrics: Iterable[str]
) -> pd.DataFrame:
    """Every pair in every metric: ``method``, ``rival``, ``metric``, ``mean``, ``low``, ``high``
    (95 % t-interval, NaN for one seed), ``seeds``, ``p`` and ``holm``, corrected over all rows."""
    rows = [
        {"method": method, "rival": rival, "metric": metric, "mean": found.mean, "low": found.low,
         "high": found.high, "seeds": found.seeds, "p": p_value(found)}
        for metric in metrics
        for method, rival in pairs
        if (found := gap(frame, method, rival, metric)) is not None
    ]
    columns = ["method", "rival", "metric", "mean", "low", "high", "seeds", "p"]
    data = pd.DataFrame(rows, columns=columns).astype({"low": float, "high": float, "p": float})
    data["holm"] = holm(data["p"])
    return data


def measure_table(
    frame: pd.DataFrame, runs: Mapping[str, Sequence[Run]], title: str, notes: Sequence[str]
) -> Table:
    """Mean and std over seeds of every measure in ``frame``, a row a method."""
    names = [name for name in frame.columns if name not in ("method", "seed")]

    def cell(method: str, of_method: Sequence[Run], name: str) -> Cell | None:
        values = seed_values(frame, method, name, [run.config.seed for run in of_method])
        if not any(v is not None for v in values) and method in set(frame["method"]):
            return None  # not a measure of this method, such as the cost of Base
        return Cell.from_seeds(values)

    return Table(
        title=title,
        columns=tuple(Column(name) for name in names),
        rows=tuple(Row(m, tuple(cell(m, rs, name) for name in names)) for m, rs in runs.items()),
        notes=tuple(notes),
        footer=provenance([run for of_method in runs.values() for run in of_method]),
    )


def forest(axes: Axes, data: pd.DataFrame, xlabel: str, *, names: bool = True) -> None:
    """Differences of :func:`compare` as points with their intervals, the first on top.

    Filled: the interval excludes 0 after Holm's correction too; hollow: it does not.
    """
    for y, row in enumerate(data.itertuples()):
        look = {"color": color(row.method), "markersize": 6, "markeredgewidth": 1.6}
        look |= {} if row.holm < 0.05 else {"markerfacecolor": "white"}
        axes.plot([row.low, row.high], [y, y], color=look["color"], linewidth=1.8)
        axes.plot(row.mean, y, "o", **look)
    axes.axvline(0, color=INK, linewidth=0.8)
    labels = [f"{r.method} − {r.rival}" for r in data.itertuples()]
    axes.set(xlabel=xlabel, ylim=(len(data) - 0.4, -0.6))
    axes.set_yticks(range(len(data)), labels if names else [""] * len(data), fontsize=9)


def head_to_head_figure(frame: pd.DataFrame, compared: pd.DataFrame, k: int) -> Figure:
    """pass@1 against pass@k with a small mark a seed, and the paired differences in both."""
    figure, axes = panels(1, 3, width=4.2, height=4.4)
    spot, first, last = axes[0]
    for method in COLORS:  # in one order, whatever the runs'
        mine = frame[frame["method"] == method]
        if mine.empty:
            continue
        x, y = mine["pass@1"], mine[f"pass@{k}"]
        marker = "D" if method in ("DAPO", *BASES["DAPO"]) else "X" if method == "Base" else "o"
        spot.scatter(x, y, s=12, color=color(method), marker=marker, alpha=0.5, linewidth=0)
        spot.scatter([x.mean()], [y.mean()], s=80, color=color(method), marker=marker,
                     edgecolor="white", label=method, zorder=3)
    spot.set(xlabel="pass@1, %", ylabel=f"pass@{k}, %",
             title="Large: mean over seeds; small: each seed")
    spot.grid(color=GREY, alpha=0.2)
    figure.legend(*spot.get_legend_handles_labels(), loc="outside lower center", ncols=6,
                  frameon=False, fontsize=9)
    for axes_, metric in ((first, "pass@1"), (last, f"pass@{k}")):
        forest(axes_, compared[compared["metric"] == metric], f"difference in {metric}, points",
               names=axes_ is first)
        axes_.set_title("Paired by seed, 95 % t-interval")
    return figure
