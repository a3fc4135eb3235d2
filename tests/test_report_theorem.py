"""Random checks of the theorem: what they compute, and that they could fail."""

import numpy as np
import pytest

from paperlib.errors import UserError
from paperlib.report import theorem
from paperlib.report.theorem import (
    COSTS,
    aligned_as_printed,
    gain_sweep,
    random_cases,
    theorem_figure,
)


def test_equality_and_sign_on_random_policies():
    for kind in COSTS:
        cases = random_cases(200, 0, kind)
        assert len(cases) == 200 and cases["error"].max() < 1e-10
        assert cases.loc[cases["aligned"], "direct"].min() > -1e-12
        assert cases["aligned"].all() == (kind != "any")
    assert (cases["direct"] < -1e-3).any()  # where the cost ignores the reward
    assert random_cases(5, 0, "any").equals(random_cases(5, 0, "any"))
    assert not random_cases(5, 1, "any").equals(random_cases(5, 0, "any"))
    with pytest.raises(UserError, match="unknown kind of cost 'all'"):
        random_cases(1, 0, "all")


def test_a_wrong_formula_would_show(monkeypatch):
    right = theorem.gain
    monkeypatch.setattr(theorem, "gain", lambda q, r, w: right(q, r, w) * (q @ w))  # without E[w]
    assert random_cases(50, 0, "any")["error"].max() > 1e-3


def test_gain_sweep_by_hand():
    reference, reward = np.array([0.5, 0.3, 0.2]), np.array([1.0, 0.0, 0.0])
    costs = {"mistake": np.array([0.0, 1.0, 0.0]), "right": np.array([1.0, 0.0, 0.0])}
    sweep = gain_sweep(reference, reward, costs, np.log(2), np.array([0.0, 1.0]))
    assert sweep["gain"].tolist() == pytest.approx([0, 2 / 27, 0, -1 / 6])
    cases = random_cases(20, 0, "any")
    assert len(theorem_figure(cases, sweep, 1e-16).axes) == 2


def test_the_printed_condition_demands_equal_rewards_of_equal_costs():
    assert aligned_as_printed([1, 0, 0], [0, 1, 2])
    assert not aligned_as_printed([1, 0], [0, 0])
    assert not aligned_as_printed([1, 0], [1, 0])
