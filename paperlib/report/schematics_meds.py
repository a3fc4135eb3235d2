"""Drawings of the MEDS notebooks: the method on one page (after MEDS, Fig. 2), and HDBSCAN's blob.

Pure functions that return a Figure. The overview's numbers are not decoration: penalties and
advantages of its one group are computed by the functions that training calls.
"""

from __future__ import annotations

import numpy as np
import pandas
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Ellipse, Rectangle

from paperlib.methods.meds import Meds, penalty
from paperlib.rl.objective import group_advantages

RIGHT, FREQUENT, RARE, NEW, GREY = "#009E73", "#D55E00", "#CC79A7", "#7F7F7F", "#B8B8B8"
INK = "#333333"

# One group of eight: four right, two of a frequent mistake, one of a rarer one, one all new.
COLORS = [RIGHT, FREQUENT, RIGHT, RARE, RIGHT, FREQUENT, RIGHT, NEW]
PAST = {FREQUENT: 4, RARE: 2}  # wrong rollouts of earlier visits, by mistake
SIZES = np.array(  # of each rollout's cluster, past and present counted together
    [PAST[c] + COLORS.count(c) if c in PAST else 0 for c in COLORS]
)
LAYERS = 12


def overview() -> Figure:
    """MEDS from a prompt to the update, in eight panels around the training loop."""
    figure = Figure(figsize=(14, 6.8))
    width, height, left, bottom = 0.19, 0.33, 0.045, 0.075
    columns = [left + i * 0.2425 for i in range(4)]
    rows = [bottom + 0.475, bottom]
    places = [(x, rows[0]) for x in columns] + [(x, rows[1]) for x in reversed(columns)]
    panels = (
        _sample, _filter, _layer_logits, _memory, _clusters, _penalty, _reward, _advantages,
    )
    for (x, y), draw in zip(places, panels, strict=True):
        draw(figure.add_axes((x, y, width, height)))
    canvas = figure.add_axes((0, 0, 1, 1))
    canvas.set(xlim=(0, 1), ylim=(0, 1))
    canvas.axis("off")
    gap = 0.2425 - width
    for x in columns[:3]:
        for y, forward in ((rows[0], True), (rows[1], False)):
            ends = (x + width + 0.12 * gap, x + width + 0.88 * gap)
            start, stop = ends if forward else ends[::-1]
            _arrow(canvas, (start, y + height / 2), (stop, y + height / 2))
    top, low = rows[0] - 0.015, rows[1] + height + 0.068
    _arrow(canvas, (columns[3] + width / 2, top), (columns[3] + width / 2, low))
    _arrow(canvas, (columns[0] + width / 2, low), (columns[0] + width / 2, top))
    canvas.text(columns[0] + width / 2 + 0.01, (top + low) / 2, "next step", va="center",
                fontsize=9, color=INK)
    return figure


def blob_figure(data: pandas.DataFrame) -> Figure:
    """What HDBSCAN makes of one round blob of points.

    Args:
        data: columns ``n`` (points), ``all_noise`` (share of draws without any cluster),
            ``clusters`` (their mean number) and ``clustered`` (mean share of points in one).
    """
    figure = Figure(figsize=(9, 3.4), layout="constrained")
    shares, number = figure.subplots(1, 2)
    shares.plot(data["n"], data["all_noise"], "o-", color=FREQUENT, label="draws: all noise")
    shares.plot(data["n"], data["clustered"], "s--", color=INK, label="points: in a cluster")
    shares.set(ylabel="share", ylim=(-0.03, 1.03), title="Few points: nothing is found")
    shares.legend(frameon=False, loc="center right")
    number.plot(data["n"], data["clusters"], "o-", color=RARE)
    number.axhline(1, color=INK, linestyle=":")
    number.text(data["n"].max(), 1.08, "the truth: one", ha="right", va="bottom", color=INK)
    number.set(ylabel="clusters, mean over draws", title="Many points: arbitrary pieces")
    number.set_ylim(bottom=-0.1)
    for axes in (shares, number):
        axes.set_xlabel("identically distributed points n")
        axes.spines[["top", "right"]].set_visible(False)
    return figure


def _arrow(axes: Axes, start: tuple[float, float], stop: tuple[float, float]) -> None:
    style = {"arrowstyle": "-|>", "color": INK, "lw": 1.6, "mutation_scale": 15}
    axes.annotate("", xy=stop, xytext=start, arrowprops=style)


def _open(axes: Axes, title: str, note: str, x: float = 1.0, y: float = 1.0) -> None:
    """A framed panel without ticks, ``x`` by ``y`` wide, with a title and a line below it."""
    axes.set(xlim=(0, x), ylim=(0, y), xticks=[], yticks=[], facecolor="#FAFAFA")
    for spine in axes.spines.values():
        spine.set_color("#CCCCCC")
    axes.set_title(title, fontsize=11, fontweight="bold", color=INK, loc="left", pad=19)
    axes.text(0, 1.03, note, transform=axes.transAxes, fontsize=9, color=INK)


def _tile(axes: Axes, x: float, y: float, color: str, size: float, alpha: float = 1.0) -> None:
    axes.add_patch(Rectangle((x, y), size, size, color=color, alpha=alpha, lw=0))
    mark = "✓" if color == RIGHT else "✗"
    axes.text(x + size / 2, y + size / 2, mark, color="white", ha="center", va="center_baseline",
              fontsize=9 if size < 0.9 else 12)


def _sample(axes: Axes) -> None:
    _open(axes, "1  Sample", "G answers to prompt x, graded", 6, 4)
    for i, color in enumerate(COLORS):
        _tile(axes, 0.5 + 1.3 * (i % 4), 2.25 - 1.3 * (i // 4), color, 1.0)
    axes.text(3, 0.35, "colour: kind of mistake (unknown to MEDS)", ha="center", fontsize=8.5,
              color=INK)


def _filter(axes: Axes) -> None:
    _open(axes, "2  Dynamic sampling (DAPO)", "only groups with right and wrong answers", 12, 8)
    groups = {5.6: [FREQUENT] * 8, 3.4: COLORS, 1.2: [RIGHT] * 8}
    for y, colors in groups.items():
        kept = colors is COLORS
        for i, color in enumerate(colors):
            _tile(axes, 0.5 + 0.97 * i, y, color, 0.8, 1.0 if kept else 0.4)
        axes.text(8.7, y + 0.4, "kept" if kept else "dropped", va="center", fontsize=9.5,
                  color=INK if kept else NEW, fontweight="bold" if kept else "normal")


def _layer_logits(axes: Axes) -> None:
    _open(axes, "3  Layer logits of wrong answers", "logit of the answer's first token, by layer",
          LAYERS + 1, 10)
    axes.set_xlim(0.5, LAYERS + 0.5)
    axes.axvspan(LAYERS / 2 + 0.5, LAYERS + 0.5, color="#E8E8E8", lw=0)
    layer = np.arange(1, LAYERS + 1)
    for color, curves in _curves().items():
        for curve in curves:
            axes.plot(layer, curve, color=color, lw=1.7)
    axes.text(0.75 * LAYERS + 0.5, 9.0, "later half: f(y)", ha="center", fontsize=9, color=INK)
    axes.set_xlabel("layer", fontsize=9, color=INK, labelpad=3)


def _curves() -> dict[str, list[np.ndarray]]:
    """Layer logits ``[LAYERS]`` of the group's wrong rollouts, by mistake."""
    x = np.linspace(0, 1, LAYERS)
    shapes = {
        FREQUENT: 1.6 + 6.0 * x**3,
        RARE: 2.2 + 4.2 * np.exp(-(((x - 0.72) / 0.16) ** 2)) + 1.4 * x,
        NEW: 2.0 + 2.0 * x - 1.9 * np.exp(-(((x - 0.75) / 0.12) ** 2)),
    }
    return {
        color: [shape + 0.35 * i for i in range(COLORS.count(color))]
        for color, shape in shapes.items()
    }


def _memory(axes: Axes) -> None:
    _open(axes, "4  Memory of prompt x", "features of its wrong answers so far", 10, 10)
    visits = [[FREQUENT, RARE, FREQUENT], [RARE, FREQUENT, FREQUENT],
              [color for color in COLORS if color != RIGHT]]
    y = 9.4
    for name, rows in zip(("visit 1", "visit 2", "now"), visits, strict=True):
        axes.text(0.4, y - 0.36 * len(rows), name, va="center", fontsize=9, color=INK)
        for color in rows:
            _strip(axes, color, y - 0.62)
            y -= 0.72
        y -= 0.5


def _strip(axes: Axes, color: str, y: float) -> None:
    """A feature vector as six cells, darker where the layer logit is larger."""
    feature = _curves()[color][0][LAYERS // 2 :]
    for i, value in enumerate(feature / feature.max()):
        cell = Rectangle((3.2 + i, y), 0.94, 0.58, color=color, alpha=float(value) ** 1.5, lw=0)
        axes.add_patch(cell)


def _clusters(axes: Axes) -> None:
    _open(axes, "5  Clusters: HDBSCAN", "past (rings) and present (discs) together", 10, 8)
    clouds = {
        FREQUENT: [(2.1, 5.0), (2.9, 5.7), (3.2, 4.6), (2.4, 4.1), (3.5, 5.2), (2.7, 4.9)],
        RARE: [(6.7, 4.1), (7.3, 3.7), (7.4, 4.8)],
        NEW: [(5.0, 1.3)],
    }
    for color, points in clouds.items():
        for i, (x, y) in enumerate(points):
            face = "none" if i < PAST.get(color, 0) else color
            axes.plot(x, y, "o", ms=7, mec=color, mfc=face, mew=1.5)
    for xy, w, h, color in (((2.8, 4.9), 2.9, 3.0, FREQUENT), ((7.1, 4.2), 2.3, 2.5, RARE)):
        axes.add_patch(Ellipse(xy, w, h, fill=False, ec=color, lw=1.2, ls="--"))
    axes.text(2.8, 6.9, f"|C| = {SIZES[COLORS.index(FREQUENT)]}", ha="center", fontsize=10,
              color=FREQUENT)
    axes.text(7.1, 5.9, f"|C| = {SIZES[COLORS.index(RARE)]}", ha="center", fontsize=10, color=RARE)
    axes.text(5.4, 1.3, "noise", va="center", fontsize=10, color=NEW)


def _penalty(axes: Axes) -> None:
    _open(axes, "6  Penalty", "min(α ln(|C| + 1), β):  α = 0.1, β = 0.2", 10.5, 0.26)
    axes.set_xlim(-0.5, 10.5)
    settings = Meds.paper()
    x = np.linspace(0, 10.2, 100)
    axes.plot(x, penalty(x, settings.alpha, settings.beta), color=INK, lw=1.6)
    axes.axhline(settings.beta, color=GREY, ls=":")
    axes.text(0.3, settings.beta + 0.008, "β", fontsize=11, color=INK)
    for color in (FREQUENT, RARE, NEW):
        size = SIZES[COLORS.index(color)]
        y = float(penalty(size, settings.alpha, settings.beta))
        axes.plot(size, y, "o", ms=9, color=color, clip_on=False, zorder=3)
        if size:
            axes.text(size + 0.25, y - 0.024, f"{y:.2f}", color=color, fontsize=10)
    axes.set_xlabel("cluster size |C|", fontsize=9, color=INK, labelpad=3)


def _rewards() -> tuple[np.ndarray, np.ndarray]:
    """Raw and shaped rewards ``[8]`` of the group."""
    raw = np.array([float(color == RIGHT) for color in COLORS])
    return raw, raw - penalty(SIZES, Meds.paper().alpha, Meds.paper().beta)


def _reward(axes: Axes) -> None:
    _open(axes, "7  Shaped reward", "r − penalty; right answers keep theirs")
    _bars(axes, _rewards()[1], -0.42, 1.25)


def _advantages(axes: Axes) -> None:
    _open(axes, "8  Advantages and DAPO update", "lines: what it was without the penalty")
    without, shaped = (
        group_advantages(
            torch.tensor(rewards), len(COLORS), scale_rewards=True, advantage_epsilon=1e-6
        ).numpy()
        for rewards in _rewards()
    )
    _bars(axes, shaped, -1.85, 1.5, without)
    axes.text(3.5, -1.7, "clip 0.2 / 0.28, token mean, no KL", ha="center", fontsize=9, color=INK)
    axes.hlines(without, np.arange(8) - 0.42, np.arange(8) + 0.42, color=INK, lw=1.8)


def _bars(
    axes: Axes, values: np.ndarray, low: float, high: float, marks: np.ndarray | None = None
) -> None:
    """Bars of ``values [8]`` with their numbers, which also keep clear of ``marks``."""
    axes.bar(np.arange(len(values)), values, color=COLORS, width=0.7)
    axes.axhline(0, color=INK, lw=0.8)
    axes.set(xlim=(-0.7, len(values) - 0.3), ylim=(low, high))
    marks = values if marks is None else marks
    for i, (value, mark) in enumerate(zip(values, marks, strict=True)):
        above = value > 0
        y, offset = (max(value, mark), 3) if above else (min(value, mark), -3)
        va = "bottom" if above else "top"
        axes.annotate(f"{value:.2f}".replace("-", "−"), (i, y), (0, offset),
                      textcoords="offset points", ha="center", va=va, fontsize=8.5, color=INK)
