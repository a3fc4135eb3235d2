"""Groups of similar points: HDBSCAN, near-identical points, nearest-neighbour vote.

Pure functions on float64 arrays of one prompt's feature vectors, ``[n, d]``; they return integer
labels, ``NOISE`` (-1) for a point of no cluster. Label numbers carry no meaning beyond one call.
"""

import numpy as np
from scipy.sparse.csgraph import connected_components
from scipy.spatial.distance import cdist

NOISE = -1


def hdbscan_labels(
    points: np.ndarray, *, min_cluster_size: int = 2, min_samples: int = 1
) -> np.ndarray:
    """HDBSCAN labels ``[n]`` under Euclidean distance (MEDS, Sec. 4.1); fewer than 2 are noise.

    The hdbscan package does not count a point among its own ``min_samples``: clusters of exactly
    ``min_cluster_size`` are found only if ``min_samples`` is below it.
    """
    if len(points) < 2:  # the package raises for one point
        return np.full(len(points), NOISE)
    from hdbscan import HDBSCAN  # seconds to import, and only needed once points are there

    # one job: a worker pool costs more than the few hundred points of a prompt
    model = HDBSCAN(min_cluster_size, min_samples, core_dist_n_jobs=1)
    return model.fit_predict(points).astype(np.int64)


def near_identical_groups(
    points: np.ndarray, tolerance: float, min_size: int = 2
) -> list[np.ndarray]:
    """Index arrays of groups of ``min_size`` or more points linked by distances <= ``tolerance``,
    in the order of their first points."""
    if len(points) < 2:
        return []
    count, component = connected_components(cdist(points, points) <= tolerance, directed=False)
    groups = (np.flatnonzero(component == c) for c in range(count))
    return sorted((g for g in groups if len(g) >= min_size), key=lambda g: g[0])


def unit_rows(vectors: np.ndarray) -> np.ndarray:
    """Rows of ``[n, d]`` divided by their length; rows of zeros and of NaN stay what they are."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.where(lengths > 0, lengths, 1.0)


def knn_vote(history: np.ndarray, labels: np.ndarray, new: np.ndarray, k: int = 3) -> np.ndarray:
    """Labels ``[q]`` of ``new [q, d]``: majority of the ``k`` most similar of ``history [m, d]``.

    Similarity is the cosine; ``m`` must be at least 1, and all of a shorter history vote. A tied
    vote goes to the smallest label, so noise wins (released code of MEDS).
    """
    similarity = unit_rows(new) @ unit_rows(history).T
    nearest = np.argsort(-similarity, axis=1, kind="stable")[:, :k]
    votes = labels[nearest] - NOISE  # from 0; argmax takes the first of equals
    return np.array([np.bincount(each).argmax() + NOISE for each in votes], dtype=np.int64)
