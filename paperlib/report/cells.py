"""Cells over seeds, and which of a column are bold or underlined: the papers' rules."""

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from paperlib.errors import UserError

MISSING = "missing"
MeanStd = tuple[float, float | None]
Rule = Callable[[Sequence[MeanStd]], list[str]]  # a column -> "bold", "underline" or "" of each


@dataclass(frozen=True)
class Cell:
    """One measured cell: a value per seed in the unit of its column."""

    values: tuple[float, ...] | None  # None: nothing was measured
    expected: int | None = None  # seeds that the table promises

    def __post_init__(self) -> None:
        bad = [v for v in self.values or () if not math.isfinite(v)]
        if bad:
            raise UserError(f"a table cell holds {bad[0]}; values are finite, or None if missing")

    @classmethod
    def from_seeds(cls, values: Iterable[float | None]) -> "Cell":
        """From one entry per promised seed, None for a seed without a result."""
        entries = list(values)
        return cls(tuple(v for v in entries if v is not None) or None, expected=len(entries))

    @property
    def status(self) -> str:
        return "measured" if self.values else MISSING

    @property
    def mean(self) -> float | None:
        return statistics.fmean(self.values) if self.values else None

    @property
    def std(self) -> float | None:
        """Standard deviation over seeds with ddof 1; None for fewer than two values."""
        return statistics.stdev(self.values) if self.values and len(self.values) > 1 else None

    def text(self, decimals: int) -> str:
        """"33.7 ± 2.5", "33.7", "33.7 ± 2.5 (2 of 3)" or "missing"."""
        if not self.values:
            return MISSING
        partial = len(self.values) < (self.expected or 0)
        seeds = f" ({len(self.values)} of {self.expected})" if partial else ""
        return _number(self.mean, self.std, decimals) + seeds


@dataclass(frozen=True)
class Printed:
    """A cell as a paper prints it: mean and perhaps std, without the values behind them."""

    mean: float
    std: float | None = None
    read_off: bool = False  # read off a figure by others, less certain; shown with a dagger

    @property
    def status(self) -> str:
        return "read off a figure" if self.read_off else "printed"

    def text(self, decimals: int) -> str:
        return _number(self.mean, self.std, decimals) + ("†" if self.read_off else "")


def _number(mean: float, std: float | None, decimals: int) -> str:
    return f"{mean:.{decimals}f}" + ("" if std is None else f" ± {std:.{decimals}f}")


def _same(a: float, b: float) -> bool:
    return abs(a - b) < 1e-9  # means of the same values may differ by rounding


def cohens_d(a: MeanStd, b: MeanStd) -> float:
    """|mean difference| over the pooled standard deviation sqrt((s_a^2 + s_b^2) / 2); a std of None
    (one value) counts as 0."""
    if _same(a[0], b[0]):
        return 0.0
    pooled = math.sqrt(((a[1] or 0.0) ** 2 + (b[1] or 0.0) ** 2) / 2)
    return abs(a[0] - b[0]) / pooled if pooled else math.inf


def cohen_marks(cells: Sequence[MeanStd]) -> list[str]:
    """Memory-R+ Table 1: bold is the best mean and all within Cohen's d < 0.5 of it; the second
    best is underlined only when a single cell is bold; a column of zeros stays plain.

    The pooling and leaving a zero without underline are our readings; with them the paper's own
    numbers give 2, 7, 7, 9 bold cells to R1, Cosine, Memory-R, Memory-R+ (its text: 2, 7, 8, 10).
    """
    if all(mean == 0 for mean, _ in cells):
        return [""] * len(cells)
    best = max(mean for mean, _ in cells)
    tops = [cell for cell in cells if _same(cell[0], best)]
    marks = ["bold" if min(cohens_d(c, t) for t in tops) < 0.5 else "" for c in cells]
    return _underline_second(cells, marks) if marks.count("bold") == 1 else marks


def bold_max(cells: Sequence[MeanStd]) -> list[str]:
    """MEDS Tables 1 and 2: the best mean bold and the second underlined, ties included; no notion
    of spread."""
    best = max((mean for mean, _ in cells), default=0.0)
    return _underline_second(cells, ["bold" if _same(mean, best) else "" for mean, _ in cells])


def _underline_second(cells: Sequence[MeanStd], marks: list[str]) -> list[str]:
    second = max((c[0] for c, mark in zip(cells, marks, strict=True) if not mark), default=0.0)
    return [
        "underline" if not mark and second != 0 and _same(cell[0], second) else mark
        for cell, mark in zip(cells, marks, strict=True)
    ]
