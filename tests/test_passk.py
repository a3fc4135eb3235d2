import numpy as np
import pytest

from paperlib.errors import UserError
from paperlib.evaluation.passk import bootstrap_interval, mean_pass_at_k, pass_at_k


@pytest.mark.parametrize(("n", "c", "k", "expected"), [
    (4, 1, 1, 0.25), (4, 1, 2, 0.5), (4, 1, 4, 1.0), (4, 0, 4, 0.0), (4, 4, 1, 1.0),
    (5, 2, 3, 0.9),  # 1 - C(3, 3) / C(5, 3) = 1 - 1 / 10
    (2000, 3, 1000, 0.87518759), (100_000, 1, 50_000, 0.5),
])  # fmt: skip
def test_pass_at_k_by_hand(n, c, k, expected):
    assert pass_at_k(n, c, k) == pytest.approx(expected, abs=1e-8)


@pytest.mark.parametrize(("n", "c", "k", "named"), [
    (2, 0, 5, "pass@5 cannot be estimated from n = 2 samples; k must be in 1..2"),
    (2, 1, 5, "k must be in 1..2"),  # never 1.0, although one of the two is right
    (1, 1, 2, "k must be in 1..1"),  # one greedy response has a pass@1 only
    (4, 1, 0, "k must be in 1..4"), (0, 0, 1, "n must be at least 1"),
    (4, 5, 1, "5 right of n = 4 .* c in 0..n"), (4, -1, 1, "-1 right of n = 4 .* c in 0..n"),
])  # fmt: skip
def test_pass_at_k_has_no_estimate(n, c, k, named):
    with pytest.raises(UserError, match=named):
        pass_at_k(n, c, k)


def test_mean_is_per_problem_and_not_pooled():
    counts = [(4, 4), (4, 0), (2, 1)]
    assert mean_pass_at_k(counts, 1) == pytest.approx(0.5)
    assert mean_pass_at_k(counts, 2) == pytest.approx(2 / 3)
    # pooled, 5 right of 10 would give 1 - C(5, 2) / C(10, 2) = 0.78
    with pytest.raises(UserError, match="no problems"):
        mean_pass_at_k([], 1)


def test_bootstrap_interval_covers_the_truth_about_as_often_as_it_says():
    rng = np.random.default_rng(0)
    runs = rng.random((300, 60)) < 0.3
    intervals = [bootstrap_interval(run) for run in runs]
    assert all(low <= run.mean() <= high for run, (low, high) in zip(runs, intervals, strict=True))
    assert 0.9 < np.mean([low <= 0.3 <= high for low, high in intervals]) < 0.99
    assert bootstrap_interval(runs[0]) == intervals[0]
    assert bootstrap_interval([0.25, 0.25]) == (0.25, 0.25)
    for values in ([], [[0.5, 1.0]]):
        with pytest.raises(UserError, match="one number per problem"):
            bootstrap_interval(values)
