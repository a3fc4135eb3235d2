"""Terms recomputed from stored rollouts equal what the run logged."""

from dataclasses import replace

import numpy as np
import pytest

from paperlib.errors import UserError
from paperlib.experiments.recipes import recipe
from paperlib.experiments.replay import replay
from paperlib.experiments.store import Store
from paperlib.methods.meds import ClusterPenalty, Meds
from paperlib.methods.memory_r import Exploit, Explore, MemoryR


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    store = Store(tmp_path_factory.mktemp("runs"))
    configs = [recipe("memory_r", "Memory-R+", "smoke", 0), recipe("meds", "MEDS", "smoke", 0),
               recipe("meds", "GRPO", "smoke", 0)]
    return [store.run(c).ensure(progress=False) for c in configs]


def test_replay_equals_the_log(runs):
    for run, intrinsic in zip(runs, (2, 1, 0), strict=True):
        for term in run.config.terms:
            found = replay(run, term)
            assert np.array_equal(found["reward"], found["logged"]), term.name
        for term in run.config.terms[len(run.config.terms) - intrinsic :]:
            acts = run.metrics()[f"reward_nonzero/{term.name}"] > 0
            assert acts.mean() >= 0.5, term.name


@pytest.mark.parametrize(("paper", "method"), [("memory_r", "Memory-R+"), ("meds", "MEDS")])
def test_the_released_presets_train_and_replay(tmp_path, paper, method):
    config = replace(recipe(paper, method, "smoke", 0, "released"), max_steps=4)
    run = Store(tmp_path).run(config).ensure(progress=False)
    for term in config.terms:
        found = replay(run, term)
        assert np.array_equal(found["reward"], found["logged"]), term.name
    assert found["reward"].ne(0).any()  # the last one: explore, cluster penalty


def test_other_settings_on_the_same_rollouts(runs):
    memory, meds, grpo = runs
    tiny = {"encoder": "tiny", "explore_warmup": 1}
    for term in (Exploit(MemoryR.released(**tiny)), Explore(MemoryR.released(**tiny))):
        found = replay(memory, term)
        assert not np.array_equal(found["reward"], found["logged"])
    single = replay(meds, ClusterPenalty(Meds.paper(method="single")))
    assert not np.array_equal(single["reward"], single["logged"])
    assert replay(grpo, Exploit(MemoryR.paper(encoder="tiny")))["logged"].isna().all()


def test_layer_logits_of_another_kind_are_refused(runs):
    _, meds, grpo = runs
    with pytest.raises(UserError, match="no layer logits"):
        replay(grpo, ClusterPenalty(Meds.paper()))
    with pytest.raises(UserError, match="logit 'normed'.*wants 'raw'"):
        replay(meds, ClusterPenalty(Meds.released()))
