"""Intervals over seeds: what they claim to cover, they cover."""

import numpy as np
import pytest

from paperlib.report.difference import Spread, difference, pooled_spread


def test_pooled_spread_by_hand():
    # two methods: the residuals are half of the gaps' deviations, so both readings agree
    ours, rival = [12.0, 14.0, 16.0], [10.0, 10.0, 10.0]
    spread = pooled_spread([ours, rival])
    assert (spread.sd, spread.df) == (pytest.approx(2.0), 2)
    own, pooled = (difference("a - b", ours, rival, spread=s) for s in (None, spread))
    assert (own.low, own.high) == pytest.approx((pooled.low, pooled.high))
    assert str(pooled).endswith("(95 %, 3 seeds, pooled)")
    # one value for all seeds is no trained method: its spread is the other's own
    assert not difference("a - b", ours, [10.0], spread=Spread(1.0, 6)).pooled
    assert difference("x", [1.0, 2.0], [0.0, 0.0], spread=Spread(1.0, 6), level=0.9).level == 0.9


@pytest.mark.parametrize(
    "values", [[], [[1.0]], [[1.0, 2.0]], [[1.0, 2.0], [1.0, None]], [[1.0] * 3, [1.0] * 3]]
)
def test_too_little_to_pool_is_no_spread(values):
    assert pooled_spread(values) is None


def test_a_missing_run_costs_a_degree_of_freedom():
    full = [[1.0, 2.0, 4.0], [2.0, 3.0, 3.0], [0.0, 5.0, 1.0]]
    assert pooled_spread(full).df == 4
    full[1][2] = None
    assert pooled_spread(full).df == 3


@pytest.mark.parametrize("seeds", [3, 5, 12])
@pytest.mark.parametrize("pooled", [True, False])
def test_intervals_of_95_percent_cover_95_percent(seeds, pooled):
    """Four methods, seeds that shift all of them alike, as measured in the tiny world (2.3 points
    of a paired difference); pooling keeps the promise, and narrows the interval with few seeds."""
    rng, covered, widths = np.random.default_rng(seeds), 0, []
    for _ in range(1000):
        table = rng.normal(0, 3, seeds) + rng.normal(0, 2.3 / np.sqrt(2), (4, seeds))
        spread = pooled_spread(table) if pooled else None
        found = difference("x", table[0], table[1], spread=spread)
        covered += found.low <= 0 <= found.high
        widths.append(found.high - found.low)
    assert 0.93 < covered / 1000 < 0.97
    if seeds == 3:
        assert (np.mean(widths) < 8) == pooled  # 6.3 against 10.6
