"""Top-1 eigen ratio, by hand and over windows of steps."""

import numpy as np
import pytest

from paperlib.evaluation.eigen import sliding_eigen_ratio, top1_eigen_ratio

CROSS = np.array([[2.0, 0.0], [-2.0, 0.0], [0.0, 1.0], [0.0, -1.0]])  # variances 8 : 2


def test_ratio_by_hand():
    assert top1_eigen_ratio(CROSS) == pytest.approx(0.8)
    assert top1_eigen_ratio(CROSS + [5.0, -3.0]) == pytest.approx(0.8)  # centred
    turned = CROSS @ np.array([[0.6, 0.8], [-0.8, 0.6]])
    assert top1_eigen_ratio(turned) == pytest.approx(0.8)
    assert top1_eigen_ratio(np.eye(3)[:, :2] @ np.diag([1.0, 0.0])) == pytest.approx(1.0)


def test_ratio_is_that_of_the_covariance():
    vectors = np.random.default_rng(0).normal(size=(50, 4)) * [3, 2, 1, 1]
    values = np.linalg.eigvalsh(np.cov(vectors, rowvar=False))
    assert top1_eigen_ratio(vectors) == pytest.approx(values[-1] / values.sum())


def test_rows_without_a_feature_and_without_spread():
    with_nan = np.vstack([CROSS, [[np.nan, np.nan]]])
    assert top1_eigen_ratio(with_nan) == pytest.approx(0.8)
    assert np.isnan(top1_eigen_ratio(np.full((3, 2), 0.1)))
    assert np.isnan(top1_eigen_ratio(CROSS[:1])) and np.isnan(top1_eigen_ratio(CROSS[:0]))


def test_sliding_windows():
    # step 1 lies along x, step 2 along y: apart they are lines, together the cross; 3 is empty
    ends, ratios = sliding_eigen_ratio(CROSS, [1, 1, 2, 2], window=1)
    assert ends.tolist() == [1, 2] and ratios == pytest.approx([1, 1])
    ends, ratios = sliding_eigen_ratio(CROSS, [1, 1, 2, 2], window=2)
    assert ends.tolist() == [2] and ratios == pytest.approx([0.8])
    ends, ratios = sliding_eigen_ratio(CROSS, [1, 1, 3, 3], window=1)
    assert np.isnan(ratios).tolist() == [False, True, False]
    assert len(sliding_eigen_ratio(CROSS, [1, 1, 2, 2], window=3)[0]) == 0
