"""Fig. 1 of Memory-R+ (arXiv 2504.02273), the architecture, drawn anew.

Left, one training step; right, what the two memories say about a response. The numbers in brackets
are the paper's equations, in the order of :mod:`paperlib.methods.memory_r`. One drawing unit is a
tenth of an inch, so that circles are round.
"""

from __future__ import annotations

import math

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle, FancyArrowPatch, FancyBboxPatch, Rectangle

INK, PANEL = "#222222", "#f4f4f2"
SUCCESS, FAILURE, CURRENT = "#009e73", "#d55e00", "#0072b2"  # told apart by colour-blind readers
WIDTH, HEIGHT = 116, 50

Point = tuple[float, float]


def memory_r_architecture() -> Figure:
    """The whole figure, 11.6 x 5 inches; the same on every call."""
    figure = Figure(figsize=(WIDTH / 10, HEIGHT / 10))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, WIDTH), ylim=(0, HEIGHT), aspect="equal")
    axes.axis("off")
    _training_step(axes)
    _box(axes, (81, 28.5), 68, 39, face=PANEL, edge="none")
    _text(axes, (81, 46), "Memory-R+: two episodic memories", size=10, weight="bold")
    _box(axes, (53, 28.5), 9, 7, "encoder\n$\\mathrm{Enc}$")
    _arrow(axes, [(41, 40), (53, 40), (53, 32)])
    _text(axes, (47.5, 41.2), "$q,\\ a$")
    _memory(axes, 36, SUCCESS, "successes $\\mathcal{M}^s$", "$R > \\tau_s$", nearest=1)
    _memory(axes, 17, FAILURE, "failures $\\mathcal{M}^f$", "$R \\leq \\tau_f$", nearest=0)
    _exploit(axes, (93, 35))
    _explore(axes, (93, 16))
    _box(axes, (109, 28.5), 9, 26, "min-max\nover the\nwindow $w$\n\n(6)")
    _arrow(axes, [(109, 15.5), (109, 4), (37.8, 4)])
    shares = "\\beta_s\\,\\hat{R}_{\\mathrm{exploit}} + \\beta_e\\,\\hat{R}_{\\mathrm{explore}}"
    _text(axes, (78, 5.8), f"$R_{{\\mathrm{{mem}}}} = {shares}$   (7)")
    return figure


def _training_step(axes: Axes) -> None:
    """The circle question, policy, responses, rewards, update."""
    _text(axes, (20, 48), "One training step", size=10, weight="bold")
    _box(axes, (5, 40), 9, 6, "question\n$q$")
    _box(axes, (20, 40), 11, 7, "policy $\\pi_\\theta$", edge=CURRENT)
    for shift in (1.2, 0.6, 0):  # a pile of sheets
        _box(axes, (35.5 + shift, 40 + shift), 10, 7, edge=CURRENT)
    _text(axes, (35.5, 40), "responses\n$a_1 \\ldots a_G$")
    _box(axes, (35.5, 22), 10, 7, "answer\nverifier")
    _circle(axes, (35.5, 4), 2.2, "white")
    _text(axes, (35.5, 4), "+", size=14)
    _box(axes, (20, 4), 19, 7, "GRPO: maximise\n$E[R + R_{\\mathrm{mem}}]$   (8)")
    for path in (
        [(9.5, 40), (14.5, 40)], [(25.5, 40), (30.5, 40)], [(35.5, 36.5), (35.5, 25.5)],
        [(35.5, 18.5), (35.5, 6.2)], [(33.3, 4), (29.5, 4)], [(20, 7.5), (20, 36.5)],
    ):  # fmt: skip
        _arrow(axes, path)
    _text(axes, (34.8, 12), "$R$", ha="right")
    _text(axes, (19.3, 22), "update", ha="right")


def _memory(axes: Axes, y: float, color: str, title: str, rule: str, nearest: int) -> None:
    """Three stored questions with their responses; the one ``nearest`` to q is read."""
    _text(axes, (70, y + 6), title, color=color, weight="bold")
    for row, count in enumerate((2, 4, 3)):
        middle = y + 3 - 3 * row
        _circle(axes, (64, middle), 1, "white", color)
        _text(axes, (64, middle - 0.1), f"$q_{row + 1}$", size=6.5)
        for place in range(count):
            axes.add_patch(Rectangle((67 + 2.6 * place, middle - 0.8), 1.6, 1.6, color=color))
        if row == nearest:
            _box(axes, (70, middle), 15, 2.9, face="none", edge=INK)
            _arrow(axes, [(57.5, 28.5), (62.3, middle)], curve=True)
            _arrow(axes, [(77.5, middle), (86.5, middle)])
            _text(axes, (82, middle + 1.3), "$K$ nearest (3)", size=8)
    _text(axes, (70, y - 6.2), f"takes $a$ if {rule}   (2)")


def _exploit(axes: Axes, at: Point) -> None:
    """Eq. 4: how far the response is from the middle of what succeeded."""
    x, y = at
    responses = [(x - 4, y + 2.6), (x - 1.5, y + 3.4), (x - 3.8, y - 0.6), (x - 0.7, y + 0.6)]
    middle = (sum(p[0] for p in responses) / 4, sum(p[1] for p in responses) / 4)
    current = (x + 4.4, y - 1.2)
    for response in responses:
        _circle(axes, response, 0.6, SUCCESS)
    axes.plot(*zip(middle, current, strict=True), color=INK, linestyle="--", linewidth=1)
    axes.plot(*middle, marker="x", color=INK, markersize=7, markeredgewidth=2)
    _circle(axes, current, 0.8, CURRENT)
    _text(axes, (current[0] + 1.3, current[1]), "$a$", ha="left", color=CURRENT)
    _text(axes, (x + 0.8, y - 4.5), "$R_{\\mathrm{exploit}} = -\\|a - \\mathrm{centroid}\\|$   (4)")
    _arrow(axes, [(x + 8, y), (104.5, y)])


def _explore(axes: Axes, at: Point) -> None:
    """Eq. 5: how far the response turns away from the failure most like it."""
    x, y = at
    corner = (x - 3.5, y - 1.8)
    for degrees, color in ((10, CURRENT), (48, FAILURE), (80, FAILURE)):
        tip = _polar(corner, degrees, 7.5)
        _arrow(axes, [corner, tip], color=color, width=1.8)
    arc = [_polar(corner, degrees, 4) for degrees in range(10, 49)]
    axes.plot(*zip(*arc, strict=True), color=INK, linewidth=1)
    _text(axes, _polar(corner, 10, 8.6), "$a$", color=CURRENT)
    _text(axes, (x + 0.8, y - 4.5), "$R_{\\mathrm{explore}} = 1 - \\max_j\\,\\cos(a, a_j)$   (5)")
    _arrow(axes, [(x + 8, y + 3), (104.5, y + 3)])


def _polar(origin: Point, degrees: float, length: float) -> Point:
    angle = math.radians(degrees)
    return origin[0] + length * math.cos(angle), origin[1] + length * math.sin(angle)


def _text(
    axes: Axes, at: Point, text: str, *, size: float = 9, ha: str = "center", color: str = INK,
    weight: str = "normal",
) -> None:  # fmt: skip
    style = {"fontsize": size, "ha": ha, "va": "center", "color": color, "weight": weight}
    axes.text(*at, text, **style)


def _circle(axes: Axes, at: Point, radius: float, face: str, edge: str | None = None) -> None:
    axes.add_patch(Circle(at, radius, facecolor=face, edgecolor=edge or INK, linewidth=1, zorder=3))


def _box(
    axes: Axes, center: Point, width: float, height: float, text: str = "",
    *, face: str = "white", edge: str = INK,
) -> None:  # fmt: skip
    corner = (center[0] - width / 2, center[1] - height / 2)
    style = "round,pad=0,rounding_size=1"
    axes.add_patch(FancyBboxPatch(corner, width, height, style, facecolor=face, edgecolor=edge))
    _text(axes, center, text)


def _arrow(
    axes: Axes, path: list[Point], *, color: str = INK, width: float = 1.2, curve: bool = False
) -> None:
    """Along ``path``: straight pieces, the last one with the head."""
    if len(path) > 2:
        axes.plot(*zip(*path[:-1], strict=True), color=color, linewidth=width)
    axes.add_patch(
        FancyArrowPatch(
            path[-2], path[-1], arrowstyle="-|>", mutation_scale=10, color=color, linewidth=width,
            shrinkA=0, shrinkB=0, zorder=2,
            connectionstyle="arc3,rad=0.15" if curve else "arc3",
        )
    )  # fmt: skip
