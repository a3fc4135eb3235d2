"""The figure of the rollout browser, after MEDS (arXiv 2604.11297), Figs. 6 and 7."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import Normalize, PowerNorm
from matplotlib.figure import Figure
from sklearn.manifold import TSNE

from paperlib.errors import UserError
from paperlib.methods.clustering import NOISE
from paperlib.report.browser import LABELS, answered, distances
from paperlib.report.published import meds_heatmap
from paperlib.report.style import INK, SERIES, panels
from paperlib.tasks.tiny.solutions import CATEGORIES


def plotted(case: pd.DataFrame) -> pd.DataFrame:
    """What :func:`case_figure` draws: the answered rollouts in order, with the coordinates ``x``
    and ``y`` of a t-SNE of their features and a column per layer logit."""
    rows = case[answered(case)].reset_index(drop=True)
    logits = np.array(rows["layer_logits"].tolist())
    plane = np.zeros((len(rows), 2))
    if len(rows) > 1:
        plane = TSNE(perplexity=min(10.0, len(rows) / 3), random_state=0).fit_transform(
            np.stack(rows["feature"]))
    layers = {f"layer_{i + 1}": logits[:, i] for i in range(logits.shape[1])} if len(rows) else {}
    kept = rows.drop(columns=["layer_logits", "feature"])
    return pd.concat([kept, pd.DataFrame({"x": plane[:, 0], "y": plane[:, 1], **layers})], axis=1)


def case_figure(case: pd.DataFrame) -> Figure:
    """Layer logits and distances of a prompt's wrong rollouts, their plane, and the paper's five.

    Raises:
        UserError: no wrong rollout of the prompt has an answer.
    """
    data, rows = plotted(case), case[answered(case)]
    if data.empty:
        raise UserError("no wrong rollout of this prompt has a final answer; choose another")
    figure, axes = panels(2, 2, width=5.4, height=4.4)
    layers = [column for column in data if column.startswith("layer_")]
    _heat(axes[0, 0], data, data[layers].to_numpy(), "logit", "viridis")
    axes[0, 0].set(title="(a) Layer logits of the answer", xlabel="layer")
    axes[0, 0].set_xticks(range(len(layers)), range(1, len(layers) + 1))
    _heat(axes[0, 1], data, distances(rows), "Euclidean distance", "viridis_r",
          PowerNorm(0.5))
    axes[0, 1].set(title="(b) Distances of their features", xlabel="wrong rollout", xticks=[])
    _plane(axes[1, 0], data)
    _published_heat(axes[1, 1])
    handles, names = axes[1, 0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=4, frameon=False,
                  title="true category (squares and points)")
    return figure


def _colors(data: pd.DataFrame) -> list[str]:
    return [SERIES[CATEGORIES.index(c)] if c in CATEGORIES else SERIES[-1] for c in
            data["category"]]


def _heat(
    axes: Axes, data: pd.DataFrame, values: np.ndarray, name: str, cmap: str,
    norm: Normalize | None = None,
) -> None:
    """Rows in the order of the clusters, a line between them, a square for the category."""
    image = axes.imshow(values, aspect="auto", interpolation="nearest", cmap=cmap, norm=norm)
    axes.figure.colorbar(image, ax=axes, label=name, pad=0.02)
    mark = -0.5 - 0.04 * values.shape[1]
    axes.scatter([mark] * len(data), range(len(data)), c=_colors(data), marker="s", s=9,
                 clip_on=False)
    axes.set_xlim(mark - 0.03 * values.shape[1], values.shape[1] - 0.5)
    blocks = data.groupby("final", sort=False).indices
    ends = np.cumsum([len(rows) for rows in blocks.values()])
    for end in ends[:-1]:
        axes.axhline(end - 0.5, color="white", lw=1.2)
    middles = ends - np.diff(ends, prepend=0) / 2 - 0.5
    axes.set_yticks(middles, [LABELS.get(int(label), str(label)) for label in blocks], fontsize=8)
    axes.set_ylabel("cluster at the end")
    axes.spines[:].set_visible(False)


def _plane(axes: Axes, data: pd.DataFrame) -> None:
    """A t-SNE of the features; the number is the cluster, beside its middle."""
    for category, rows in data.groupby("category", sort=False):
        axes.scatter(rows["x"], rows["y"], c=_colors(rows), s=34, alpha=0.75, linewidths=0,
                     label=(category or "not known").replace("_", " "))
    for label, rows in data[data["final"] > NOISE].groupby("final"):
        plane = rows[["x", "y"]]
        middle = ((plane - plane.median()) ** 2).sum(axis=1).idxmin()
        axes.annotate(str(label), plane.loc[middle], (6, 6), textcoords="offset points",
                      fontsize=11, color=INK)
    axes.margins(0.08)
    axes.set(title="(c) Features in the plane (t-SNE) and cluster numbers", xticks=[], yticks=[],
             xlabel="near points are alike; far distances mean little")


def _published_heat(axes: Axes) -> None:
    names, layers, values = meds_heatmap()
    axes.imshow(values, aspect="auto", cmap="viridis")
    middle = (values.min() + values.max()) / 2
    for (i, j), value in np.ndenumerate(values):
        axes.text(j, i, f"{value:.2f}".replace("-", "−"), ha="center", va="center", fontsize=8.5,
                  color="white" if value < middle else "black")
    axes.axhline(sum(name.startswith("A") for name in names) - 0.5, color="white", lw=1.2)
    axes.set_xticks(range(len(layers)), layers)
    axes.set_yticks(range(len(names)), names)
    axes.set(title="(d) The paper's five responses: logits†", ylabel="response",
             xlabel="layer (†read off Fig. 7 by others; layer 26 not read)")
    axes.spines[:].set_visible(False)
