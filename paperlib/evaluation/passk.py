"""pass@k, averaged per problem, and how sure it is: problems within a run, seeds between runs."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from paperlib.errors import UserError

AVERAGE = "Average"
LEVELS = (1, 2, 3, 4)  # of the tiny world


@cache  # curves ask for the same few counts thousands of times
def pass_at_k(n: int, c: int, k: int) -> float:
    """Probability that at least one of ``k`` samples, drawn from ``n`` with ``c`` right, is right.

    The unbiased estimator ``1 - C(n-c, k) / C(n, k)`` (Chen et al. 2021, equation 1) as a product
    of ``c`` factors, so that no binomial is ever formed. With fewer samples than k there is no
    estimate (and certainly not 0 or 1).
    """
    if n < 1 or not 0 <= c <= n:
        raise UserError(f"{c} right of n = {n} samples; n must be at least 1, c in 0..n")
    if not 1 <= k <= n:
        raise UserError(f"pass@{k} cannot be estimated from n = {n} samples; k must be in 1..{n}")
    if n - c < k:  # every choice of k samples holds a right one
        return 1.0
    # C(n-c, k) / C(n, k) = product over i = n-c+1 .. n of (1 - k / i)
    return float(1.0 - np.prod(1.0 - k / np.arange(n - c + 1, n + 1)))


def mean_pass_at_k(counts: Sequence[tuple[int, int]], k: int) -> float:
    """Mean over problems of :func:`pass_at_k`; ``counts`` are ``(n, c)`` of each problem.

    Never pooled: one sample count over all problems would estimate another quantity.
    """
    if not counts:
        raise UserError(f"mean pass@{k} of no problems is not defined; give at least one")
    return float(np.mean([pass_at_k(n, c, k) for n, c in counts]))


def levels_of(task: str) -> tuple[int | str, ...]:
    """What a task's problems are scored by: the tiny world's levels, or each benchmark."""
    return LEVELS if task.startswith("tiny") else tuple(task.split("+"))


def of_level(result: dict[str, Any], level: int | str) -> list[dict[str, Any]]:
    """The problems of a level; a benchmark alone keeps its own levels, which do not count."""
    alone = len(levels_of(result["settings"]["task"])) == 1
    return [problem for problem in result["problems"] if alone or problem["level"] == level]


def score(result: dict[str, Any], k: int, level: int | str = AVERAGE) -> float:
    """pass@k in percent over the problems of a level; the average weighs the levels equally."""
    levels = levels_of(result["settings"]["task"]) if level == AVERAGE else (level,)
    counts = ([(p["n"], p["correct"]) for p in of_level(result, one)] for one in levels)
    return 100 * sum(mean_pass_at_k(of_one, k) for of_one in counts) / len(levels)


def bootstrap_interval(values: Sequence[float]) -> tuple[float, float]:
    """95 % percentile bootstrap interval (low, high) of the mean over the problems of **one** run;
    ``values`` has one number per problem, e.g. its pass@k. It knows nothing of training seeds: the
    tables' cells have their own standard deviation."""
    data = np.asarray(values, dtype=np.float64)
    if data.ndim != 1 or not data.size:
        raise UserError(f"values have shape {data.shape}; expected one number per problem")
    picks = np.random.default_rng(0).integers(data.size, size=(2000, data.size))
    low, high = np.quantile(data[picks].mean(axis=1), [0.025, 0.975])
    return float(low), float(high)
