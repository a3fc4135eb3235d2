"""Figures: one colour per method everywhere, bands over seeds, plain axes; and their files.

The palette is Paul Tol's "muted" scheme, made to be told apart with any colour vision; methods
that share a panel also differ in their dashes. The same figure gives the same bytes, without dates
and versions, so git shows a changed figure only where the result changed.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from paperlib.files import written_together

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
DPI = 150  # of the PNG


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


def legend_below(figure: Figure, axes: Axes) -> None:
    """One legend of what ``axes`` shows, below all panels."""
    shown = axes.get_legend_handles_labels()
    figure.legend(*shown, loc="outside lower center", ncols=5, frameon=False)


def save_figure(figure: Figure, folder: Path, stem: str, data: pd.DataFrame) -> list[Path]:
    """Write ``<stem>.png``, ``<stem>.pdf`` and ``<stem>.csv`` (``data``: what was plotted, six
    significant digits) into ``folder``, all or none of them; the paths in this order."""
    finals = [Path(folder) / f"{stem}{suffix}" for suffix in (".png", ".pdf", ".csv")]
    undated = {"CreationDate": None, "Creator": None, "Producer": None}
    with written_together(finals) as (png, pdf, csv):
        figure.savefig(png, dpi=DPI, metadata={"Software": None})
        with matplotlib.rc_context({"pdf.fonttype": 42}):  # text stays text
            figure.savefig(pdf, dpi=DPI, metadata=undated)
        data.to_csv(csv, index=False, float_format="%.6g", lineterminator="\n")
    return finals
