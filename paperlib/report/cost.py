"""What MEDS costs over DAPO: by part of a step, and as a prompt's memory grows."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, ScalarFormatter

from paperlib.experiments.paired_cost import PARTS, overhead
from paperlib.report.style import GREY, INK, SERIES, color, panels

ROWS = {
    "sampling": ("sample",), "reward terms": ("terms",), "sampling and terms": ("sample", "terms"),
    "update (same work)": ("update",), "whole step": PARTS,
}  # fmt: skip


def overhead_rows(steps: pd.DataFrame) -> pd.DataFrame:
    """:func:`overhead` of each of :data:`ROWS`: columns what, percent, low, high."""
    lines = [(name, *overhead(steps, parts)) for name, parts in ROWS.items()]
    return pd.DataFrame(lines, columns=["what", "percent", "low", "high"])


def overhead_text(row: pd.Series, pairs: int) -> str:
    """A row of :func:`overhead_rows` in words."""
    interval = f" [{row['low']:+.1f}, {row['high']:+.1f}]" if row["low"] <= row["high"] else ""
    return f"{row['percent']:+.1f} % CPU time{interval} ({pairs} pairs)"


def cost_figure(
    added: pd.DataFrame, growth: Mapping[str, pd.DataFrame], paper: tuple[float, float], pairs: int
) -> Figure:
    """Percent added to a step, and seconds of the penalty against vectors in the memory.

    Args:
        added: from :func:`overhead_rows`; ``pairs`` is the number of pairs behind it.
        growth: :func:`paperlib.experiments.paired_cost.term_seconds` by preset.
        paper: the paper's range, in percent.
    """
    figure, axes = panels(1, 2, width=5.2, height=3.6)
    left, right = axes[0]
    left.axvspan(*paper, color=GREY, alpha=0.25, lw=0, label=f"the paper: {paper[0]:.1f} to "
                 f"{paper[1]:.1f} %")
    left.axvline(0, color=GREY, lw=0.8)
    for y, row in enumerate(added.itertuples()):
        shade = INK if row.what.startswith("update") else color("MEDS")
        left.plot([row.low, row.high], [y, y], color=shade, lw=1.6)
        left.plot(row.percent, y, "o", color=shade)
    left.set_yticks(range(len(added)), added["what"])
    left.invert_yaxis()
    left.set(title=f"MEDS over DAPO: median of {pairs} pairs, 95 % interval",
             xlabel="added CPU time, % of DAPO's whole step")
    left.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.22))
    for (name, rows), shade in zip(growth.items(), SERIES, strict=False):
        right.plot(rows["stored"], 1000 * rows["seconds"], "o-", color=shade, label=name)
    right.set_xscale("log", base=2)
    right.set_yscale("log")
    right.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    right.yaxis.set_major_formatter(ScalarFormatter())
    right.yaxis.set_minor_formatter(NullFormatter())
    ticks = next(iter(growth.values()))["stored"]
    right.set_xticks(ticks, [str(t) for t in ticks])
    right.set(title="The penalty for one prompt, 14 dimensions",
              xlabel="vectors in the prompt's memory", ylabel="CPU time, ms")
    right.legend(frameon=False, title="preset")
    return figure
