"""The theorem behind MEDS (arXiv 2604.11297, Sec. 3.2 and App. B) on small discrete policies.

For one prompt with finitely many answers, let q1 and q2 be the policies that maximise

    E_q[mu] - (1 / eta) KL(q || ref)    for mu = r and for mu = r - lambda c,

with reward r, cost c >= 0 and eta the inverse KL coefficient. Then

    q2 = q1 w / E_q1[w],   w = exp(-eta lambda c),   J(q2) - J(q1) = Cov_q1(r, w) / E_q1[w],

where J(q) = E_q[r] leaves the KL out. Cov_q1(r, w) is half the mean of (r1 - r2)(w1 - w2) over two
independent answers, so it is never negative if no better answer costs more (:func:`aligned`).

All arrays are ``[answers]`` float64; policies are positive and sum to 1.
"""

from __future__ import annotations

import numpy as np


def optimal_policy(reference: np.ndarray, utility: np.ndarray, eta: float) -> np.ndarray:
    """The maximiser of :func:`objective`: proportional to ``reference * exp(eta utility)``."""
    # a constant added to the utility cancels; this one keeps exp() from overflowing
    weights = reference * np.exp(eta * (utility - np.max(utility)))
    return weights / weights.sum()


def objective(
    policy: np.ndarray, reference: np.ndarray, utility: np.ndarray, eta: float
) -> float:
    """E_q[mu] - (1 / eta) KL(q || ref), the KL in nats."""
    kl = policy @ np.log(policy / reference)
    return float(policy @ utility - kl / eta)


def penalty_weights(cost: np.ndarray, eta: float, strength: float) -> np.ndarray:
    """w = exp(-eta lambda c); ``strength`` is lambda."""
    return np.exp(-eta * strength * np.asarray(cost, dtype=np.float64))


def reweighted(policy: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """q1 w / E_q1[w]: the optimum after the penalty, from the one before."""
    return policy * weights / (policy @ weights)


def gain(policy: np.ndarray, reward: np.ndarray, weights: np.ndarray) -> float:
    """J(q2) - J(q1) as the theorem has it: Cov_q1(r, w) / E_q1[w]."""
    mean_reward, mean_weight = policy @ reward, policy @ weights
    covariance = policy @ ((reward - mean_reward) * (weights - mean_weight))
    return float(covariance / mean_weight)


def aligned(reward: np.ndarray, cost: np.ndarray) -> bool:
    """Whether no answer with a higher reward has a higher cost.

    Weaker than the paper's condition, c(y1) >= c(y2) implies r(y1) <= r(y2), which demands equal
    rewards of equal costs: a wrong answer in no cluster costs nothing, as a right one does. The
    proof needs no more than this.
    """
    reward, cost = np.asarray(reward), np.asarray(cost)
    better = reward[:, None] > reward
    dearer = cost[:, None] > cost
    return not bool((better & dearer).any())
