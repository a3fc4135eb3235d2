"""Top-1 eigen ratio: how much of the features' spread lies along one direction (MEDS, App. E)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def top1_eigen_ratio(vectors: np.ndarray) -> float:
    """Largest eigenvalue of the covariance of ``vectors [n, d]`` over the sum of all (Sec. 4.3).

    Between 1/d (spread evenly: diverse) and 1 (all on one line). Rows that hold NaN, rollouts
    without a feature, are left out. NaN for fewer than two rows, or where all are equal.
    """
    vectors = np.asarray(vectors, dtype=np.float64)
    vectors = vectors[np.isfinite(vectors).all(axis=1)]
    if not len(vectors) or not np.ptp(vectors, axis=0).any():
        return float("nan")
    # squared singular values of the centred rows are the eigenvalues, up to one factor
    spread = np.linalg.svd(vectors - vectors.mean(axis=0), compute_uv=False) ** 2
    return float(spread[0] / spread.sum())


def sliding_eigen_ratio(
    vectors: np.ndarray, steps: Sequence[int], window: int
) -> tuple[np.ndarray, np.ndarray]:
    """:func:`top1_eigen_ratio` of the vectors of the last ``window`` steps, at every full window.

    Args:
        vectors, steps: ``[n, d]`` features and ``[n]`` the training step each belongs to, from 1.

    Returns:
        The steps at which the windows end, and their ratios; both empty if no window is full.
    """
    steps = np.asarray(steps)
    ends = np.arange(window, steps.max(initial=0) + 1)
    inside = ((steps > end - window) & (steps <= end) for end in ends)
    return ends, np.array([top1_eigen_ratio(vectors[rows]) for rows in inside])
