"""`paper` against `released`: what the divergences do, and HDBSCAN on one tight blob."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from paperlib.experiments.divergences import ALL
from paperlib.experiments.store import Run
from paperlib.methods.clustering import NOISE, cluster
from paperlib.methods.meds import Meds
from paperlib.report.head_to_head import forest
from paperlib.report.style import INK, SERIES
from paperlib.report.table1 import provenance
from paperlib.report.tables import Cell, Column, Row, Table

TERMS = ("exploit", "explore", "cluster_penalty")
COLUMNS = {
    "rollouts changed, %": "changed", "mean absolute change": "change",
    "correlation": "correlation", "pairs reordered, %": "reordered",
    "right: paper": "right logged", "right: switched": "right",
    "wrong: paper": "wrong logged", "wrong: switched": "wrong",
}


def replay_table(data: pd.DataFrame, runs: Sequence[Run]) -> Table:
    """The rows of :func:`paperlib.experiments.divergences.replay_frame`, mean and std over seeds.

    What changes no reward at all, or cannot be replayed, is named below the table.
    """
    rows, idle = [], []
    for (term, what), mine in data.groupby(["term", "what"], sort=False):
        if mine["changed"].max() > 0:
            values = [mine[name].dropna() for name in COLUMNS.values()]
            rows.append(Row(what, tuple(Cell(tuple(v)) if len(v) else None for v in values), term))
        elif not mine["reason"].any():
            idle.append(f"{term}: {what}")
    reasons = data[data["reason"] != ""].drop_duplicates("what")
    return Table(
        title="One divergence at a time, from the paper's reading to the released code's",
        columns=tuple(Column(name) for name in COLUMNS),
        rows=tuple(rows),
        notes=(
            "Rewards of the same stored rollouts under both readings. Pairs: of rollouts of one "
            "group whose order by the term (above, equal, below) is another. Last four columns: "
            "the term's mean reward of right and of wrong rollouts. Correlation: – where one "
            "reading is constant.",
            f"No reward changes under: {'; '.join(idle) or 'none'}.",
            *(f"{row.what}: not replayed, {row.reason}." for row in reasons.itertuples()),
        ),
        footer=provenance(runs),
        row_headers=("Term", "Switched"),
        decimals=3,
    )


SITUATIONS = {
    "HDBSCAN, one mistake": (None, False), "with the rule, one mistake": (5e-3, False),
    "HDBSCAN, beside another": (None, True), "with the rule, beside another": (5e-3, True),
}


def blob_frame(
    sigmas: Sequence[float], *, n: int = 16, dims: int = 14, draws: int = 50, seed: int = 0
) -> pd.DataFrame:
    """What becomes of ``n`` rollouts that all make one mistake, ``sigma`` apart per coordinate.

    The features are a unit vector plus normal noise, alone or beside ``n`` rollouts of another
    mistake at a right angle; clustered with and without the near-identical rule.

    Returns:
        Per ``situation`` and ``sigma``: ``whole`` (share of draws in which the mistake is exactly
        one cluster), ``clusters`` (pieces), ``noise`` (share of its rollouts) and ``penalty``
        (mean over them, noise unpaid), means over ``draws``.
    """
    rows = []
    for situation, (rule, beside) in SITUATIONS.items():
        settings = replace(Meds.paper(), near_identical=rule)
        for sigma in sigmas:
            rng = np.random.default_rng([seed, n, dims])  # the same noise for every sigma
            seen = [_blob(rng, sigma, n, dims, beside, settings) for _ in range(draws)]
            rows.append({"situation": situation, "sigma": sigma,
                         **pd.DataFrame(seen).mean().to_dict()})
    return pd.DataFrame(rows)


def _blob(
    rng: np.random.Generator, sigma: float, n: int, dims: int, beside: bool, settings: Meds
) -> dict[str, float]:
    centres = np.repeat(np.eye(dims)[:2], n, axis=0)
    points = centres + sigma * rng.normal(size=centres.shape)
    labels = cluster(points if beside else points[:n], settings)
    mine, sizes = labels[:n], (labels[:, None] == labels).sum(1)[:n]
    paid = np.minimum(settings.alpha * np.log1p(sizes), settings.beta) * (mine != NOISE)
    return {
        "whole": float((sizes == n).all() and mine[0] != NOISE),
        "clusters": float(len(np.unique(mine[mine != NOISE]))),
        "noise": float((mine == NOISE).mean()),
        "penalty": float(paid.mean()),
    }


def fidelity_figure(data: pd.DataFrame, trained: pd.DataFrame, blob: pd.DataFrame) -> Figure:
    """Left: how many pairs each divergence reorders (of the memories' terms, those that change
    any reward); right: two of them trained, and the blob."""
    figure = Figure(figsize=(12, 6.4), layout="constrained")
    axes = figure.subplot_mosaic([["rows", "trained"], ["rows", "blob"]],
                                 width_ratios=(1, 1.05), height_ratios=(1, 1.25))
    for one in axes.values():
        one.spines[["top", "right"]].set_visible(False)
    _reordered(axes["rows"], data)
    forest(axes["trained"], trained, "difference at the last checkpoint, points")
    labels = [f"{r.method.removeprefix(r.rival + ' ')}: {r.metric}" for r in trained.itertuples()]
    axes["trained"].set_yticks(range(len(trained)), labels)
    axes["trained"].set_title("Trained: switched − paper (95 % t-interval)")
    _penalty(axes["blob"], blob)
    return figure


def _reordered(axes: Axes, data: pd.DataFrame) -> None:
    shown = data[data["term"].isin(TERMS) & (data["changed"] > 0)]
    means = shown.groupby(["term", "what"], sort=False)["reordered"].mean()
    for y, ((term, what), value) in enumerate(means.items()):
        axes.barh(y, value, color=SERIES[TERMS.index(term)], alpha=1.0 if what == ALL else 0.6)
        axes.text(value + 1, y, f"{value:.1f}", va="center", fontsize=8, color=INK)
    names = [f"{term.replace('_', ' ')}: {what}" for term, what in means.index]
    axes.set_yticks(range(len(means)), names, fontsize=8)
    axes.set(xlim=(0, means.max() + 10 if len(means) else 1), ylim=(len(means) - 0.4, -0.6),
             xlabel="pairs of a group that change their order, %",
             title="Replayed: one field switched to the released code")


def _penalty(axes: Axes, blob: pd.DataFrame) -> None:
    for (situation, mine), look in zip(
        blob.groupby("situation", sort=False), ("o-", "s-", "o--", "s--"), strict=True
    ):
        hue = SERIES[0] if SITUATIONS[situation][0] is None else SERIES[1]
        axes.plot(mine["sigma"], mine["penalty"], look, color=hue, markersize=4, label=situation)
    axes.axhline(Meds.paper().beta, color=INK, linestyle=":", linewidth=1)
    axes.text(0.1, Meds.paper().beta + 0.005, "one cluster of 16", ha="right", fontsize=9)
    smallest = blob.loc[blob["sigma"] > 0, "sigma"].min()
    axes.set_xscale("symlog", linthresh=smallest)
    axes.set_xlim(-0.1 * smallest, None)
    axes.set(xlabel="σ of each coordinate (features have length 1)", ylabel="mean penalty",
             ylim=(-0.01, 0.225), title="16 rollouts, all the same mistake")
    axes.legend(frameon=False, fontsize=9, loc="lower right")
