"""Paper against ours: paired differences over seeds with intervals, and what they allow to say."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from paperlib.errors import UserError, check_choice


@dataclass(frozen=True)
class Difference:
    """Mean of ``method - rival`` over seeds with its 95 % t-interval (None for one seed)."""

    what: str
    mean: float
    low: float | None
    high: float | None
    seeds: int
    unit: str = "points"
    decimals: int = 1

    def __str__(self) -> str:
        def number(value: float) -> str:
            return f"{value:+.{self.decimals}f}"

        text = f"{self.what}: {number(self.mean)}{' ' if self.unit else ''}{self.unit}"
        if self.low is None:
            return f"{text} (one seed, no interval)"
        return f"{text} [{number(self.low)}, {number(self.high)}] (95 %, {self.seeds} seeds)"

    @property
    def verdict(self) -> str:
        """``higher``, ``lower`` or ``cannot be told``: whether the interval excludes 0. One without
        width, of seeds that happen to differ by the same amount, says nothing of other seeds."""
        if self.low is None or self.low <= 0 <= self.high or self.high - self.low < 1e-9:
            return "cannot be told"
        return "higher" if self.low > 0 else "lower"


def difference(
    what: str, method: Sequence[float | None], rival: Sequence[float | None], *,
    unit: str = "points", decimals: int = 1,
) -> Difference | None:
    """``method - rival`` of one value per seed each, None where it is missing; None if no seed has
    both. A rival with a single value (Base) stands for all seeds."""
    rivals = list(rival) * len(method) if len(rival) == 1 else list(rival)
    if len(rivals) != len(method):
        raise UserError(f"{what}: {len(method)} seeds against {len(rivals)}; give the same seeds")
    pairs = [(a, b) for a, b in zip(method, rivals, strict=True) if None not in (a, b)]
    if not pairs:
        return None
    gaps = np.array([a - b for a, b in pairs], dtype=float)
    mean, n = float(gaps.mean()), len(gaps)
    if n == 1:
        return Difference(what, mean, None, None, 1, unit, decimals)
    # t with n - 1 degrees of freedom: with three seeds an honest interval is a wide one
    half = float(stats.t.ppf(0.975, n - 1) * gaps.std(ddof=1) / np.sqrt(n))
    return Difference(what, mean, mean - half, mean + half, n, unit, decimals)


HOLDS, FAILS, UNTOLD, SHOWN = "holds", "does not hold", "cannot be told here", "shown"
VERDICTS = (HOLDS, FAILS, UNTOLD, SHOWN)  # SHOWN: an illustration, nothing is claimed


def judge(found: Difference | None, direction: str) -> str:
    """Whether ``found`` lies in the claimed ``direction``, "higher" or "lower".

    "does not hold" needs an interval on the other side of 0; one that holds 0 tells nothing.
    """
    check_choice("direction", direction, ("higher", "lower"))
    if found is None or found.verdict == "cannot be told":
        return UNTOLD
    return HOLDS if found.verdict == direction else FAILS


def all_of(verdicts: Iterable[str]) -> str:
    """The verdict on a claim of several parts: all must hold, and one that fails is enough."""
    parts = set(verdicts)
    if FAILS in parts:
        return FAILS
    return HOLDS if parts == {HOLDS} else UNTOLD


def judge_all(found: Iterable[Difference | None], direction: str) -> str:
    """:func:`judge` of every one of several differences, as one verdict."""
    return all_of(judge(one, direction) for one in found)
