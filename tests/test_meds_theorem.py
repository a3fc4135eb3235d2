"""The theorem of MEDS: a case by hand, random policies, and where it does not hold."""

import math

import numpy as np
import pytest

from paperlib.methods.meds_theorem import (
    aligned,
    gain,
    objective,
    optimal_policy,
    penalty_weights,
    reweighted,
)

# right, a frequent mistake, a rare one; eta = ln 2 turns a reward of 1 into a factor of 2
REFERENCE = np.array([0.5, 0.3, 0.2])
REWARD = np.array([1.0, 0.0, 0.0])
COST = np.array([0.0, 1.0, 0.0])
ETA = math.log(2)


def random_case(seed, answers=6):
    rng = np.random.default_rng(seed)
    reward = rng.integers(0, 2, answers).astype(float)
    cost = np.where(reward == 0, rng.uniform(0, 2, answers), 0.0)
    return rng, rng.dirichlet(np.ones(answers)), reward, cost


def test_a_case_by_hand():
    q1 = optimal_policy(REFERENCE, REWARD, ETA)
    assert q1 == pytest.approx([2 / 3, 1 / 5, 2 / 15])
    weights = penalty_weights(COST, ETA, strength=1.0)
    assert weights == pytest.approx([1, 0.5, 1])
    # E[w] = 0.9, Cov = 2/3 - 2/3 * 0.9 = 1/15
    assert gain(q1, REWARD, weights) == pytest.approx(2 / 27)
    assert reweighted(q1, weights) == pytest.approx([20 / 27, 3 / 27, 4 / 27])


@pytest.mark.parametrize("seed", range(20))
def test_random_aligned_cases(seed):
    _, reference, reward, cost = random_case(seed)
    q1 = optimal_policy(reference, reward, eta=1.7)
    weights = penalty_weights(cost, eta=1.7, strength=0.4)
    q2 = optimal_policy(reference, reward - 0.4 * cost, eta=1.7)
    assert reweighted(q1, weights) == pytest.approx(q2)
    assert gain(q1, reward, weights) == pytest.approx(q2 @ reward - q1 @ reward)
    assert aligned(reward, cost) and gain(q1, reward, weights) >= 0


def test_no_policy_does_better_than_the_optimum():
    rng, reference, reward, cost = random_case(3)
    utility = reward - cost
    best = objective(optimal_policy(reference, utility, 2.0), reference, utility, 2.0)
    others = rng.dirichlet(np.ones(len(reward)), size=200)
    assert all(objective(q, reference, utility, 2.0) < best for q in others)


def test_objective_by_hand():
    # KL((1/2, 1/2) || (1/4, 3/4)) = ln 2 / 2 + ln(2/3) / 2
    policy, reference = np.array([0.5, 0.5]), np.array([0.25, 0.75])
    expected = 0.5 - (math.log(2) + math.log(2 / 3)) / 2 / 4
    assert objective(policy, reference, np.array([1.0, 0.0]), 4.0) == pytest.approx(expected)


def test_a_cost_on_the_right_answer_loses_reward():
    cost = np.array([1.0, 0.0, 0.0])
    q1 = optimal_policy(REFERENCE, REWARD, ETA)
    assert not aligned(REWARD, cost)
    assert gain(q1, REWARD, penalty_weights(cost, ETA, 1.0)) == pytest.approx(-1 / 6)


def test_alignment():
    assert aligned([1, 0, 0], [0, 0, 2])  # equal costs of unequal rewards are allowed
    assert aligned([1, 1, 0], [0, 1, 1])
    assert not aligned([1, 0.5, 0], [0, 2, 1])


def test_large_utilities_do_not_overflow():
    q = optimal_policy(np.array([0.5, 0.5]), np.array([0.0, 1.0]), 1e6)
    assert q == pytest.approx([0.0, 1.0])
