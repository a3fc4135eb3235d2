"""Clusters of feature vectors, with cases small enough to label by hand."""

import numpy as np
import pytest

from paperlib.errors import UserError
from paperlib.methods.clustering import (
    NOISE,
    knn_vote,
    near_identical_groups,
    unit_rows,
)
from paperlib.methods.meds import Meds, cluster

PAPER, RELEASED = Meds.paper(), Meds.released()


def on_circle(*angles):
    return np.array([[np.cos(a), np.sin(a)] for a in angles])


def as_sets(labels):
    return {frozenset(np.flatnonzero(labels == name).tolist()) for name in set(labels.tolist())}


# growing gaps: each point leaves the group alone, so that it cannot fall into two
TRIO = (0.0, 0.01, 0.03)
FAR_TRIO = (1.5, 1.51, 1.53)


@pytest.mark.parametrize("settings", [PAPER, RELEASED, Meds(method="single")])
@pytest.mark.parametrize("n", [0, 1])
def test_fewer_than_two_points_are_noise(n, settings):
    assert cluster(np.ones((n, 4)), settings).tolist() == [NOISE] * n
    expected = [0] * 4 if settings.method == "single" else [NOISE] * 2
    assert cluster(on_circle(0, 1, 2, 3)[: len(expected)], settings).tolist() == expected


def test_identical_points_are_one_cluster_under_paper_and_noise_under_released():
    points = np.ones((20, 4))
    assert cluster(points, PAPER).tolist() == [0] * 20
    assert cluster(points, RELEASED).tolist() == [NOISE] * 20
    with_a_loner = np.concatenate([points, [[5.0, 1.0, 1.0, 1.0]]])
    assert cluster(with_a_loner, PAPER).tolist() == [0] * 20 + [NOISE]
    assert cluster(with_a_loner, RELEASED).tolist() == [NOISE] * 21


def test_near_identical_points_are_connected_by_steps_up_to_the_tolerance():
    points = np.array([[9.0], [0.0], [0.25], [0.5], [5.0], [0.76], [5.25]])
    groups = near_identical_groups(points, 0.25)  # 0.5 to 0.76 is too far; 0 to 0.5 goes by 0.25
    assert [g.tolist() for g in groups] == [[1, 2, 3], [4, 6]]


def test_near_identical_groups_are_as_large_as_clusters_must_be():
    pair, trio = [[0.0, 1.0]] * 2, [[1.0, 0.0]] * 3
    for size, expected in ((2, [0, 0, 1, 1, 1]), (3, [NOISE, NOISE, 0, 0, 0]), (4, [NOISE] * 5)):
        settings = Meds.paper(min_cluster_size=size)
        assert cluster(np.array(pair + trio), settings).tolist() == expected
    # what is too few by itself is left to HDBSCAN, with its neighbours
    points = on_circle(0.0, 0.0, 0.01, *FAR_TRIO)
    assert as_sets(cluster(points, Meds.paper(min_cluster_size=3))) == {
        frozenset({0, 1, 2}), frozenset({3, 4, 5})
    }


def test_hdbscan_labels_only_what_is_not_near_identical():
    points = on_circle(*TRIO, 0.7, 0.7, *FAR_TRIO, 0.702, 3.8)
    labels = cluster(points, PAPER)
    assert as_sets(labels) == {
        frozenset({0, 1, 2}), frozenset({3, 4, 8}), frozenset({5, 6, 7}), frozenset({9})
    }
    assert labels[9] == NOISE


def test_min_cluster_size_and_min_samples_reach_hdbscan():
    spread = 0.01 * np.random.default_rng(0).normal(size=(8, 32))
    points = np.repeat([[5.0], [-5.0]], 4, axis=0) + spread
    settings = {"near_identical": None, "min_cluster_size": 4}
    assert set(cluster(points, Meds(min_samples=3, **settings))) == {0, 1}
    # the package asks for one neighbour more than min_samples says
    assert set(cluster(points, Meds(min_samples=4, **settings))) == {NOISE}
    pair_between = on_circle(*TRIO, 0.7, 0.71, *FAR_TRIO)
    assert cluster(pair_between, RELEASED).max() + 1 == 3
    assert cluster(pair_between, Meds.released(min_cluster_size=3)).max() + 1 == 2


def test_non_finite_points_are_refused_with_their_number():
    points = np.random.default_rng(0).normal(size=(20, 4))
    points[3] = np.nan
    points[7, 2] = np.inf
    with pytest.raises(UserError, match="2 of 20 .*row 3"):
        cluster(points, PAPER)
    with pytest.raises(UserError, match="8 of 8"):
        cluster(np.full((8, 4), np.nan), RELEASED)


def test_half_precision_zeros_and_a_loud_feature():
    """Features are rows of unit length, Euclidean and float64, whatever precision they came in."""
    spread = 1e-3 * np.random.default_rng(0).normal(size=(8, 4))
    points = np.repeat([[1.0, 0, 0, 0], [0, 1.0, 0, 0]], 4, axis=0) + spread
    expected = as_sets(cluster(points, PAPER))
    assert expected == {frozenset(range(4)), frozenset(range(4, 8))}
    for kind in (np.float32, np.float16):
        assert as_sets(cluster(points.astype(kind), PAPER)) == expected
    assert as_sets(cluster(np.concatenate([points, np.zeros((2, 4))]), PAPER)) == {
        *expected, frozenset({8, 9})}
    lengths = np.logspace(-3, 6, 8)[:, None]  # 1e6 times as loud, or nearly silent: same direction
    assert as_sets(cluster(unit_rows(lengths * points), PAPER)) == expected


HISTORY = on_circle(0.1, 0.2, 0.3, 0.4)


@pytest.mark.parametrize(("history", "labels", "new", "k", "winners"), [
    (HISTORY, [0, 1, 1, 0], on_circle(0.0, 0.5), 3, [1, 1]),  # the majority
    (HISTORY, [0, 1, 1, 0], on_circle(0.0, 0.5), 1, [0, 0]),
    (on_circle(0.1), [4], on_circle(3.0), 3, [4]),  # a short history
    # by cosine: the first point is the closer one
    ([[1.0, 1.0], [100.0, 0.0]], [0, 1], [[2.0, 0.1]], 1, [1]),
    # a tie goes to the smallest label
    (HISTORY[:3], [2, 0, 1], on_circle(0.0), 3, [0]),
    (HISTORY[:3], [1, 0, NOISE], on_circle(0.0), 3, [NOISE]),
])  # fmt: skip
def test_the_vote(history, labels, new, k, winners):
    found = knn_vote(np.array(history), np.array(labels), np.array(new), k)
    assert found.tolist() == winners
