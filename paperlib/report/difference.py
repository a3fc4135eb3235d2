"""Differences of two methods over seeds, with intervals: each pair's own, or pooled over a family.

Three seeds know little of their own spread: over many pairs some come out far too small by luck.
The methods of one paper are trained alike, so that one standard deviation serves all their pairs
(:func:`pooled_spread`); intervals are then narrower and still cover what they say.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from paperlib.errors import UserError


@dataclass(frozen=True)
class Spread:
    """Standard deviation of a paired difference, in the unit of the values, and its degrees of
    freedom."""

    sd: float
    df: int

    def half_width(self, seeds: int, level: float = 0.95) -> float:
        """Half of the t-interval of a mean over so many seeds."""
        return float(stats.t.ppf((1 + level) / 2, self.df) * self.sd / np.sqrt(seeds))


@dataclass(frozen=True)
class Difference:
    """Mean of ``method - rival`` over seeds with its interval (None for one seed)."""

    what: str
    mean: float
    low: float | None
    high: float | None
    seeds: int
    unit: str = "points"
    decimals: int = 1
    level: float = 0.95
    pooled: bool = False  # the standard deviation is a family's

    def __str__(self) -> str:
        def number(value: float) -> str:
            return f"{value:+.{self.decimals}f}"

        text = f"{self.what}: {number(self.mean)}{' ' if self.unit else ''}{self.unit}"
        if self.low is None:
            return f"{text} (one seed, no interval)"
        how = f"{100 * self.level:.4g} %, {self.seeds} seeds{', pooled' if self.pooled else ''}"
        return f"{text} [{number(self.low)}, {number(self.high)}] ({how})"

    @property
    def verdict(self) -> str:
        """``higher``, ``lower`` or ``cannot be told``: whether the interval excludes 0. One without
        width, of seeds that happen to differ by the same amount, says nothing of other seeds."""
        if self.low is None or self.low <= 0 <= self.high or self.high - self.low < 1e-9:
            return "cannot be told"
        return "higher" if self.low > 0 else "lower"


def difference(
    what: str, method: Sequence[float | None], rival: Sequence[float | None], *,
    unit: str = "points", decimals: int = 1, spread: Spread | None = None, level: float = 0.95,
) -> Difference | None:
    """``method - rival`` of one value per seed each, None where it is missing; None if no seed has
    both. A rival with a single value (Base) stands for all seeds, and takes no ``spread``: it is
    that of two trained methods. Without one the pair's own standard deviation counts."""
    alone = len(rival) == 1
    rivals = list(rival) * len(method) if alone else list(rival)
    if len(rivals) != len(method):
        raise UserError(f"{what}: {len(method)} seeds against {len(rivals)}; give the same seeds")
    pairs = [(a, b) for a, b in zip(method, rivals, strict=True) if None not in (a, b)]
    if not pairs:
        return None
    gaps = np.array([a - b for a, b in pairs], dtype=float)
    mean, n, pooled = float(gaps.mean()), len(gaps), spread is not None and not alone
    if n == 1:
        return Difference(what, mean, None, None, 1, unit, decimals, level)
    # t with n - 1 degrees of freedom: with three seeds an honest interval is a wide one
    used = spread if pooled else Spread(float(gaps.std(ddof=1)), n - 1)
    half = used.half_width(n, level)
    return Difference(what, mean, mean - half, mean + half, n, unit, decimals, level, pooled)


def pooled_spread(values: Sequence[Sequence[float | None]]) -> Spread | None:
    """The spread of a paired difference of any two rows of ``values [methods][seeds]``, None where
    one is missing: sqrt(2) times the residuals' standard deviation after the means of methods and
    of seeds. None with fewer than two degrees of freedom, or no spread at all."""
    table = np.array(
        [[np.nan if v is None else v for v in row] for row in values], dtype=float, ndmin=2
    )
    rows, columns = np.nonzero(np.isfinite(table))
    methods, seeds = np.unique(rows), np.unique(columns)
    design = np.hstack([rows[:, None] == methods, columns[:, None] == seeds]).astype(float)
    df = len(rows) - int(np.linalg.matrix_rank(design)) if len(rows) else 0
    if df < 2:
        return None
    found = table[rows, columns]
    residuals = found - design @ np.linalg.lstsq(design, found, rcond=None)[0]
    sd = float(np.sqrt(2 * (residuals**2).sum() / df))
    return Spread(sd, df) if sd > 1e-9 else None
