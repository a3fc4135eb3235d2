"""One look for all figures: one colour per method everywhere, bands over seeds, plain axes.

The palette is Paul Tol's "muted" scheme, made to be told apart with any colour vision; methods
that share a panel also differ in their dashes.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

INK, GREY = "#333333", "#8C8C8C"
COLORS = {
    "Base": GREY,
    "R1": "#332288", "Cosine": "#DDCC77", "Memory-R": "#88CCEE", "Memory-R+": "#117733",
    "R1 + MEDS penalty": "#44AA99",
    "GRPO": "#999933", "GRPO w/ Entropy Adv": "#AA4499", "DAPO": "#CC6677", "MEDS": "#882255",
    "DAPO + Memory-R+ terms": "#661100",
}  # fmt: skip
DASHES: dict[str, Any] = {
    "R1": (0, (5, 1.5)), "Cosine": "-.", "Memory-R": (0, (1, 1)), "DAPO": (0, (5, 1.5)),
    "GRPO": "-.", "GRPO w/ Entropy Adv": (0, (1, 1)), "R1 + MEDS penalty": "-.",
}
# For things that are no methods: error categories, clusters, layers. Okabe and Ito's palette.
SERIES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C8C8C")


def color(method: str) -> str:
    """The colour of a method; a variant ("Memory-R+ K=20", "MEDS 28-diff") has its method's."""
    named = [name for name in COLORS if method == name or method.startswith(f"{name} ")]
    return COLORS[max(named, key=len)] if named else INK


def plain(text: str) -> str:
    """Text of data, such as a level's or a problem's name, that a figure shall show as it is."""
    return text.replace("$", r"\$")


def panels(rows: int, columns: int, *, width: float = 4.2, height: float = 3.1) -> tuple[
    Figure, np.ndarray
]:
    """A figure of ``rows x columns`` axes (``[rows, columns]``), each ``width x height`` inches."""
    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    for one in axes.flat:
        one.spines[["top", "right"]].set_visible(False)
    return figure, axes


def mean_band(
    axes: Axes, x: Sequence[float], curves: Sequence[Sequence[float]], method: str, **line: Any
) -> None:
    """The mean over ``curves [seeds, len(x)]`` and, from two seeds on, a band of +- one standard
    deviation (ddof 1). ``line`` goes to ``plot``; the label is the method unless given."""
    values = np.asarray(curves, dtype=float)
    look = {"color": color(method), "linestyle": DASHES.get(method, "-"), "label": method, **line}
    axes.plot(x, values.mean(0), **look)
    if len(values) > 1:
        spread = values.std(0, ddof=1)
        low, high = values.mean(0) - spread, values.mean(0) + spread
        axes.fill_between(x, low, high, color=look["color"], alpha=0.15, linewidth=0)


def smooth(values: Sequence[float], window: int) -> np.ndarray:
    """Trailing mean over the last ``window`` values, fewer at the start; NaN is left out."""
    return pd.Series(values, dtype=float).rolling(window, min_periods=1).mean().to_numpy()


def legend_below(figure: Figure, axes: Axes, columns: int = 5) -> None:
    """One legend of what ``axes`` shows, below all panels."""
    figure.legend(
        *axes.get_legend_handles_labels(), loc="outside lower center", ncols=columns, frameon=False
    )
