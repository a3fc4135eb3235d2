"""Divergences of the presets: found by themselves, measured by hand-made rewards, replayed."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from paperlib.experiments.divergences import ALL, NOT_RECORDED, divergences, effect, replay_frame
from paperlib.experiments.recipes import recipe
from paperlib.experiments.replay import replay
from paperlib.methods.meds import Meds
from paperlib.report.fidelity import SITUATIONS, blob_frame, fidelity_figure, replay_table
from paperlib.tasks.data import load_problems


def both(paper, method, profile="tiny"):
    return [recipe(paper, method, profile, 0, preset) for preset in ("paper", "released")]


def test_every_field_that_differs_is_switched_once_and_alone():
    paper, released = both("meds", "MEDS")
    found = divergences(paper, released)
    ours, theirs = paper.terms[-1].settings, released.terms[-1].settings
    differ = {f for f in vars(ours) if getattr(ours, f) != getattr(theirs, f)}
    assert {d.what.split()[0] for d in found} == differ | {"all"}
    for one in found[:-1]:
        name = one.what.split()[0]
        changed = {f for f in vars(ours) if getattr(one.term.settings, f) != getattr(ours, f)}
        assert changed == (set() if name in NOT_RECORDED else {name})
        assert bool(one.reason) == (name in NOT_RECORDED)
    assert found[-1].what == ALL
    kept = {"logit": ours.logit, "position": ours.position}
    assert found[-1].term.settings == Meds.released(alpha=0.1, beta=0.2, **kept)


def test_coupled_fields_go_together_and_plain_terms_as_a_whole():
    found = divergences(*both("memory_r", "Memory-R+"))
    explore = [d.what for d in found if d.term.name == "explore"]
    assert "window 100 samples" in explore
    assert "explore_warmup 9 queries" in explore
    assert not any(what.startswith("window_unit") for what in explore)
    integer = [d for d in found if d.term.name == "integer"]
    assert [(d.what, d.term.reading) for d in integer] == [(ALL, "released")]
    assert divergences(*[recipe("meds", "GRPO", "tiny", 0)] * 2) == []


def test_effect_by_hand():
    logged = np.array([0.0, 0.5, 1.0, 1.0, 0.2, 0.4])
    switched = np.array([0.0, 0.0, 1.0, 0.6, 0.2, 0.4])
    found = effect(logged, switched, np.array([0, 1, 1, 0, 1, 0.0]), 3)
    assert found["changed"] == pytest.approx(100 * 2 / 6)
    assert found["change"] == pytest.approx(0.9 / 6)
    # of three pairs a group: 0 < 0.5 became a tie; 1 > 0.2, 1 > 0.4, 0.2 < 0.4 stayed
    assert found["reordered"] == pytest.approx(100 / 6)
    assert found["right"] == pytest.approx(1.2 / 3)
    assert found["right logged"] == pytest.approx(1.7 / 3)
    assert found["wrong"] == pytest.approx(1.0 / 3)
    assert found["wrong logged"] == pytest.approx(1.4 / 3)
    assert found["correlation"] == pytest.approx(np.corrcoef(logged, switched)[0, 1])


def test_a_shift_moves_every_reward_and_no_order():
    logged = np.array([0.0, 0.5, 1.0, 1.0])
    found = effect(logged, logged + 0.25, np.array([0, 1, 1, 0.0]), 2)
    assert (found["changed"], found["reordered"]) == (100, 0)
    assert found["correlation"] == pytest.approx(1)
    assert np.isnan(effect(logged, np.ones(4), np.array([0, 1, 1, 0.0]), 2)["correlation"])


def test_a_tight_blob_is_never_one_cluster_without_the_rule():
    data = blob_frame([0.0, 1e-4, 0.1], draws=5).set_index(["situation", "sigma"])
    plain, rule, beside, _ = SITUATIONS
    assert data.loc[plain, "whole"].max() == 0
    assert data.loc[(plain, 0.0), "noise"] == 1 and data.loc[(plain, 0.0), "penalty"] == 0
    assert data.loc[(plain, 1e-4), "clusters"] > 1.5
    # HDBSCAN knows no scale
    assert data.loc[(plain, 1e-4), "clusters"] == data.loc[(plain, 0.1), "clusters"]
    assert data.loc[(rule, 1e-4), "whole"] == 1
    assert data.loc[(rule, 1e-4), "penalty"] == pytest.approx(Meds.paper().beta)
    assert data.loc[(rule, 0.1), "whole"] == 0  # farther apart than the rule reaches
    assert data.loc[(beside, 1e-4), "penalty"] > data.loc[(plain, 1e-4), "penalty"]


class StoredRun:
    """What replay reads of a run: two visits of one problem, three mistakes at each."""

    def __init__(self, config):
        self.config = replace(config, num_generations=4)
        self.logged = np.zeros(8)
        self.logged = replay(self, config.terms[-1])["reward"]

    def status(self):
        return "missing"  # no commit, no machine to name

    def rollouts(self):
        problem = load_problems(self.config.dataset)[0]
        logits = np.ones((8, 8))  # the frequent mistake, rollouts 1 and 5 alone make another each
        logits[1, :6], logits[5, 6:] = -1, -1
        return pd.DataFrame({
            "step": [1] * 4 + [2] * 4, "problem_id": problem.id, "completion": "", "gold": "1",
            "length": 5, "truncated": False, "accuracy": [1.0, 0, 0, 0, 1, 0, 0, 0],
            "layer_logits": list(logits), "reward/cluster_penalty": self.logged,
        })


def test_a_run_is_replayed_drawn_and_tabled():
    paper, released = both("meds", "MEDS", "smoke")
    run = StoredRun(paper)
    data = replay_frame(run, divergences(paper, released)).set_index("what")
    noise, free = data.loc["penalize_noise True"], data.loc["first_visit_free False"]
    assert noise["wrong"] < noise["wrong logged"] and free["wrong"] < free["wrong logged"]
    assert data.loc["penalize_noise True", "right"] == 0  # right rollouts are never penalised
    assert np.isnan(data.loc["logit raw", "changed"]) and data.loc["logit raw", "reason"]
    data = data.reset_index()
    table = replay_table(data, [run])
    assert [row.label for row in table.rows] == data.loc[data["changed"] > 0, "what"].tolist()
    assert "cluster_penalty: diff_layers all" in table.notes[1]
    assert sum("not replayed" in note for note in table.notes) == 2
    trained = pd.DataFrame([{"method": "MEDS noise as a cluster", "rival": "MEDS",
                             "metric": "pass@1", "mean": 1.0, "low": -1.0, "high": 3.0,
                             "holm": 0.4}])
    figure = fidelity_figure(data, trained, blob_frame([0.0, 1e-3], draws=2))
    bars = figure.axes[0].patches
    shown = data.loc[data["changed"] > 0, "reordered"]
    np.testing.assert_allclose([bar.get_width() for bar in bars], shown)
    assert figure.axes[1].get_yticklabels()[0].get_text() == "noise as a cluster: pass@1"
