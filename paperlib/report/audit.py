"""The papers' printed numbers held against their own text: what both audits share, and the table.

``audit_memory_r.memory_r_audit`` and ``audit_meds.meds_audit`` take what
:func:`paperlib.report.published.published` returns and give one row a statement. "consistent" and
"inconsistent" speak of the printed numbers alone: not of who is right, and the text may mean
something else than our reading of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import astuple, dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from paperlib.errors import check_choice
from paperlib.files import write_texts
from paperlib.report.render import escape_latex, escape_markdown

CONSISTENT, INCONSISTENT, UNCHECKED = "consistent", "inconsistent", "cannot be checked"
# test problems, for the means that are possible; MEDS Sec. 4.1 and the benchmarks themselves
PROBLEMS = {
    "GSM8K": 1319, "MATH-500": 500, "AIME24": 30, "AMC23": 40, "MATH500": 500, "Minerva": 272,
    "OlympiadBench": 675,
}  # fmt: skip


@dataclass(frozen=True)
class Audited:
    """One statement of a paper: what it prints, what its printed numbers give."""

    paper: str
    statement: str
    where: str
    printed: str
    computed: str
    verdict: str

    def __post_init__(self) -> None:
        check_choice("verdict", self.verdict, (CONSISTENT, INCONSISTENT, UNCHECKED))


def verdict(holds: bool) -> str:
    return CONSISTENT if holds else INCONSISTENT


@cache
def possible(mean: float, problems: int, runs: int, std: float | None = None,
             decimals: int = 1) -> bool:
    """Whether a printed mean (percent) can come from ``runs`` counts of ``problems`` right answers,
    and with a ``std`` (ddof 1, percent; three runs only) whether both can, at ``decimals``.

    The GRIM and GRIMMER tests, by enumeration.
    """
    half = 0.5 * 10.0**-decimals + 1e-9
    unit = 100 / problems  # percent that one right answer is worth
    totals = range(int(np.ceil((mean - half) * runs / unit)),
                   int(np.floor((mean + half) * runs / unit)) + 1)
    if std is None:
        return len(totals) > 0
    # of three numbers none is farther from the mean than 1.16 std
    reach = int(np.ceil(1.2 * (std + half) / unit)) + 1
    for total in totals:
        near = np.arange(max(0, total // 3 - reach), min(problems, total // 3 + reach) + 1)
        a, b = near[:, None], near[None, :]
        c = total - a - b
        spread = unit * np.sqrt((a**2 + b**2 + c**2 - total**2 / 3).clip(0) / 2)
        if ((c >= 0) & (c <= problems) & (np.abs(spread - std) <= half)).any():
            return True
    return False


def tidy(rows: list[dict[str, Any]]) -> pd.DataFrame:
    """A line per printed cell: model, method, benchmark, metric, mean, std (NaN if none)."""
    lines = []
    for row in rows:
        for benchmark, metrics in row.items():
            if benchmark in ("model", "method"):
                continue
            for metric, cell in metrics.items():
                if cell is not None:
                    mean, std = (cell["mean"], cell.get("std")) if isinstance(cell, dict) else (
                        cell, None)
                    lines.append((row["model"], row["method"], benchmark, metric, mean, std))
    columns = ["model", "method", "benchmark", "metric", "mean", "std"]
    return pd.DataFrame(lines, columns=columns).astype({"mean": float, "std": float})


def columns_by_method(cells: pd.DataFrame) -> pd.DataFrame:
    """Means with one line a column of the paper's table and model, one column a method."""
    return cells.pivot_table("mean", ["model", "benchmark", "metric"], "method", sort=False)


def named(keys: Iterable[tuple[str, ...]]) -> str:
    return "; ".join(" ".join(key) for key in keys) or "none"


def to_frame(rows: list[Audited]) -> pd.DataFrame:
    """One line a statement, in the order of :class:`Audited`."""
    return pd.DataFrame([astuple(row) for row in rows], columns=[f.name for f in fields(Audited)])


def markdown(rows: list[Audited]) -> str:
    """The audit as a Markdown table; what is not consistent is bold."""
    lines = ["| " + " | ".join(f.name for f in fields(Audited)) + " |", "|---" * 6 + "|"]
    for row in rows:
        *texts, found = (escape_markdown(text) for text in astuple(row))
        lines.append("| " + " | ".join([*texts, found if row.verdict == CONSISTENT
                                        else f"**{found}**"]) + " |")
    return "\n".join(lines) + "\n"


def latex(rows: list[Audited], label: str) -> str:
    """The audit as a ``longtable``."""
    widths = "".join(f"p{{{w}\\linewidth}}" for w in (0.08, 0.22, 0.1, 0.16, 0.26, 0.08))
    body = [" & ".join(escape_latex(text) for text in astuple(row)) + r" \\" for row in rows]
    head = " & ".join(f.name for f in fields(Audited)) + r" \\"
    return "\n".join(["% needs \\usepackage{booktabs,longtable}",
                      f"\\begin{{longtable}}{{{widths}}}",
                      f"\\caption{{The papers' printed numbers against their text.}}"
                      f"\\label{{tab:{label}}}\\\\", "\\toprule", head, "\\midrule", "\\endhead",
                      *body, "\\bottomrule", "\\end{longtable}"]) + "\n"


def write_audit(rows: list[Audited], folder: Path, stem: str) -> list[Path]:
    """Write ``<stem>.md``, ``.csv`` and ``.tex`` into ``folder``."""
    texts = {".md": markdown(rows), ".csv": to_frame(rows).to_csv(index=False, lineterminator="\n"),
             ".tex": latex(rows, stem)}
    return write_texts(folder, stem, texts)
