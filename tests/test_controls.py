"""Placebo and dose of a memory's rewards: what they keep and what they take away."""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
from rollout_batches import rollouts, saved_and_loaded

from paperlib.errors import UserError
from paperlib.experiments.recipes import recipe
from paperlib.experiments.store import Store
from paperlib.methods.controls import Control
from paperlib.methods.meds import ClusterPenalty
from paperlib.rl.train import reward_terms

RIGHT = [1, 0, 0, 0, 0, 0, 1, 0, 0, 0]


@dataclass(unsafe_hash=True)
class Paid(ClusterPenalty):
    """A cluster penalty that pays what it is told."""

    values: ClassVar[np.ndarray] = -np.array([0, 1, 2, 3, 4, 5, 0, 6, 7, 8]) / 10

    def __call__(self, rollouts):
        return self.values[: len(rollouts)]


def two_groups(step=1):
    return rollouts(
        ["x"] * 10, step=step, accuracy=RIGHT, problem_ids=["p"] * 6 + ["q"] * 4,
    )  # fmt: skip


def test_a_placebo_deals_the_same_rewards_to_the_wrong_rollouts_of_a_group():
    term = Control.of(Paid(), placebo=True)
    dealt = [term(two_groups(step)) for step in range(1, 9)]
    for values in dealt:
        assert values[0] == values[6] == 0  # right ones never pay
        for group in (slice(0, 6), slice(6, 10)):
            assert sorted(values[group]) == sorted(Paid.values[group])
    assert len({tuple(values) for values in dealt}) > 4  # another deal in another step
    np.testing.assert_array_equal(term(two_groups(3)), dealt[2])  # and the same in the same one


def test_a_dose_multiplies_and_a_contrast_leaves_the_groups_mean():
    np.testing.assert_allclose(Control.of(Paid(), dose=3)(two_groups()), 3 * Paid.values)
    assert not Control.of(Paid(), dose=0)(two_groups()).any()
    values = Control.of(Paid(), dose=2, contrast=True)(two_groups())
    np.testing.assert_allclose(values[1:6], [0.4, 0.2, 0, -0.2, -0.4], atol=1e-12)
    assert values[0] == 0 and abs(values[7:].sum()) < 1e-12


def test_dose_one_is_the_method_itself_and_the_memory_goes_on(tmp_path):
    """Placebo or not, the memory sees and keeps what it would; a checkpoint holds it."""
    meds = recipe("meds", "MEDS", "smoke", 0)
    *others, penalty = meds.terms
    control = Control.of(penalty, placebo=True)
    assert control.needs_layer_logits and control.settings == penalty.settings
    config = replace(meds, method="MEDS placebo", terms=(*others, control))
    assert config.hash != meds.hash
    assert replace(config, terms=(*others, Control.of(penalty))).hash != config.hash
    store = Store(tmp_path)
    store.run(config).ensure(progress=False, report_to="none")
    metrics = store.run(config).metrics()
    assert (metrics["reward_nonzero/cluster_penalty"] > 0).any()
    term = reward_terms(config)[-1]
    logits = np.random.default_rng(0).normal(size=(10, 8)).astype(np.float32)
    term(replace(two_groups(), layer_logits=logits))
    assert len(term.term.memory) == 2
    assert not penalty.memory  # the config's own term remembers nothing
    other = reward_terms(config)[-1]
    other.load_state_dict(saved_and_loaded(term.state_dict()))
    assert other.term.visits == term.term.visits


def test_memory_terms_are_dealt_out_among_all_rollouts_of_a_group():
    exploit = recipe("memory_r", "Memory-R+", "smoke", 0).terms[-2]
    assert exploit.name == Control.of(exploit, placebo=True).name == "exploit"
    assert not Control.of(exploit).needs_layer_logits


@pytest.mark.parametrize("dose", [-1.0, float("nan"), float("inf")])
def test_what_is_no_dose_is_refused(dose):
    with pytest.raises(UserError, match="dose is"):
        Control.of(ClusterPenalty(), dose=dose)
    with pytest.raises(UserError, match="must be its term's"):
        Control("exploit", ClusterPenalty())
