"""Training curves of Memory-R+ (its Figs. 3 to 6): figures, and comparisons between their phases.

Figures are pure functions of a frame of curves: one row a step, with columns ``method``, ``seed``,
``step`` and the metrics of paperlib/rl/logs.py.
"""

from collections.abc import Callable, Mapping, Sequence

import pandas as pd
from matplotlib.figure import Figure

from paperlib.experiments.store import Run
from paperlib.report.difference import Difference, difference
from paperlib.report.style import legend_below, mean_band, panels

LABELS = {
    "reward/correctness": "correctness reward",
    "reward/integer": "integer reward",
    "reward/xmlcount": "XML reward",
    "reward/reasoning_steps": "reasoning-steps reward",
    "reward/exploit": "exploit, normalised",
    "reward/explore": "explore, normalised",
    "length": "mean length (tokens)",
    "entropy": "entropy (nats)",
    "kl": "KL to base (nats)",
}
SMOOTH = 8  # steps of the trailing mean


def curves(runs: Mapping[str, Sequence[Run]]) -> pd.DataFrame:
    """The metrics of the complete runs among ``runs`` (per method, one a seed)."""
    frames = [
        run.metrics().assign(method=method, seed=run.config.seed)
        for method, of_method in runs.items()
        for run in of_method
        if run.status() == "complete"
    ]
    empty = pd.DataFrame(columns=["method", "seed", "step"])
    return pd.concat(frames, ignore_index=True) if frames else empty


def curve_grid(
    rows: Mapping[str, tuple[pd.DataFrame, Sequence[str]]], *, window: int = SMOOTH,
    width: float = 3.3, height: float = 2.7, draw: Callable[..., None] | None = None,
) -> Figure:
    """Rows of panels, one panel a metric: trailing means over ``window`` steps, of several seeds
    with a band of +- one standard deviation.

    ``rows``: title of the row -> its curves and its metrics, keys of LABELS. ``draw`` draws
    ``(axes, smoothed curves [steps, seeds], method, metric, title)`` in another way.
    """
    most = max(len(metrics) for _, metrics in rows.values())
    figure, axes = panels(len(rows), most, width=width, height=height)
    figure.get_layout_engine().set(w_pad=0.09, h_pad=0.06)
    for line, (title, (data, metrics)) in enumerate(rows.items()):
        for one, metric in zip(axes[line], metrics, strict=False):
            for method in data["method"].unique():
                wide = _wide(data, method, metric).rolling(window, min_periods=1).mean()
                if draw:
                    draw(one, wide, method, metric, title)
                elif not wide.empty:
                    mean_band(one, wide.index, wide.T, method)
            one.set(ylabel=LABELS[metric], xlabel="training step" if line + 1 == len(rows) else "")
        seeds = data["seed"].nunique()
        if not draw and seeds > 1:
            title = f"{title}{', ' if title else ''}mean ± std of {seeds} seeds"
        axes[line, 0].set_title(title, loc="left", fontsize="medium")
        for one in axes[line, len(metrics) :]:
            one.set_axis_off()
    legend_below(figure, axes[0, 0])
    return figure


def _wide(data: pd.DataFrame, method: str, metric: str) -> pd.DataFrame:
    """``[steps, seeds]`` of one metric; without the seeds that have none."""
    of_method = data[data["method"] == method].reindex(columns=["step", "seed", metric])
    return of_method.pivot(index="step", columns="seed", values=metric).dropna(axis=1, how="all")


def mean_over(
    data: pd.DataFrame, method: str, metric: str, seeds: Sequence[int], first: float, last: float
) -> list[float | None]:
    """The mean of a metric over steps ``first < step <= last``, for each seed; None if missing."""
    wide = _wide(data, method, metric)
    means = wide[(wide.index > first) & (wide.index <= last)].mean().dropna()
    return [float(means[seed]) if seed in means else None for seed in seeds]


def last_third(
    data: pd.DataFrame, method: str, metric: str, seeds: Sequence[int]
) -> list[float | None]:
    """The mean over the last third of the steps, for each seed."""
    steps = data["step"].max()
    return mean_over(data, method, metric, seeds, 2 * steps / 3, steps)


def rise(
    data: pd.DataFrame, method: str, metric: str, seeds: Sequence[int], decimals: int = 3
) -> Difference | None:
    """From the first to the last third of a run, paired by seed. In ``tiny`` on Table 1's data a
    third is one pass over the problems, so that both are means over the same questions."""
    first = mean_over(data, method, metric, seeds, 0, data["step"].max() / 3)
    last = last_third(data, method, metric, seeds)
    unit = {"length": "tokens", "entropy": "nats", "kl": "nats"}.get(metric, "")
    what = f"{method}, {LABELS[metric].split(' (')[0].removesuffix(' reward')}"
    return difference(what, last, first, unit=unit, decimals=decimals)


def told(*found: Difference | None) -> str:
    """The differences as one line; "missing" for one that no seed has."""
    return "; ".join("missing" if one is None else str(one) for one in found)


def gains(*found: Difference | None) -> str:
    """What :func:`rise` found, as one line."""
    return f"from the first to the last third, {told(*found)}"
