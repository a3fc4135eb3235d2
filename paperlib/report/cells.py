"""What a table is made of: cells, columns, rows. Values only; nothing here reads a run."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from paperlib.errors import UserError

MISSING = "missing"
NOT_APPLICABLE = "–"  # a cell that cannot exist, such as Base at its "best" checkpoint


@dataclass(frozen=True)
class Cell:
    """One measured cell: a value per seed, in the unit of its column.

    ``values`` is None where nothing was measured; ``expected`` is the number of seeds the table
    promises. Raises UserError on NaN and infinity: a broken value is not a missing one.
    """

    values: tuple[float, ...] | None
    expected: int | None = None
    mark: str = ""  # "bold", "underline" or ""

    def __post_init__(self) -> None:
        bad = [v for v in self.values or () if not math.isfinite(v)]
        if bad:
            raise UserError(f"a table cell holds {bad[0]}; values are finite, or None if missing")

    @classmethod
    def from_seeds(cls, values: Iterable[float | None]) -> Cell:
        """From one entry per promised seed, None for a seed without a result."""
        entries = list(values)
        present = tuple(v for v in entries if v is not None)
        return cls(present or None, expected=len(entries))

    @property
    def n(self) -> int:
        return len(self.values or ())

    @property
    def mean(self) -> float | None:
        return statistics.fmean(self.values) if self.values else None

    @property
    def std(self) -> float | None:
        """Standard deviation over seeds with ddof 1; None for fewer than two values."""
        return statistics.stdev(self.values) if self.values and self.n > 1 else None

    def text(self, decimals: int) -> str:
        """"33.7 ± 2.5", "33.7", "33.7 ± 2.5 (2 of 3)" or "missing"."""
        if not self.values:
            return MISSING
        partial = self.expected is not None and self.n < self.expected
        return _number(self.mean, self.std, decimals) + (
            f" ({self.n} of {self.expected})" if partial else ""
        )


@dataclass(frozen=True)
class Printed:
    """A cell as a paper prints it: mean and perhaps std, without the values behind them."""

    mean: float
    std: float | None = None
    read_off: bool = False  # read off a figure by others, less certain; shown with a dagger
    mark: str = ""

    def text(self, decimals: int) -> str:
        return _number(self.mean, self.std, decimals) + ("†" if self.read_off else "")


def _number(mean: float, std: float | None, decimals: int) -> str:
    text = f"{mean:.{decimals}f}"
    return text if std is None else f"{text} ± {std:.{decimals}f}"


@dataclass(frozen=True)
class Column:
    """``group`` spans the neighbouring columns that share it, e.g. "Level 1" over last and best."""

    name: str
    group: str = ""


@dataclass(frozen=True)
class Row:
    """``cells`` in the order of the columns; None is a cell that cannot exist, shown as a dash.

    ``group`` (such as the model) is the set of rows within which cells compete for marks.
    """

    label: str
    cells: tuple[Cell | Printed | None, ...]
    group: str = ""


@dataclass(frozen=True)
class Table:
    """A table of values. Raises UserError if a row does not fit the columns."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()  # how to read it
    footer: tuple[str, ...] = ()  # where it comes from
    row_headers: tuple[str, str] = ("Model", "Method")  # of Row.group and Row.label
    decimals: int = 1

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row.cells) != len(self.columns):
                raise UserError(
                    f"table {self.title!r}, row {row.label!r}: {len(row.cells)} cells for "
                    f"{len(self.columns)} columns"
                )

    @property
    def grouped(self) -> bool:
        return any(row.group for row in self.rows)
