"""The MEDS penalty: the released code's traces, and hand-computed cases of the paper's words."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from rollout_batches import rollouts

from paperlib.errors import UserError
from paperlib.experiments.recipes import recipe
from paperlib.methods.clustering import NOISE
from paperlib.methods.meds import (
    NOT_CLUSTERED,
    ClusterPenalty,
    Meds,
    cluster,
    features,
    penalty,
    prompt_key,
)
from paperlib.methods.rollouts import call_term

GOLDEN = json.loads((Path(__file__).parent / "golden" / "meds_released.json").read_text())
NO_ANSWER = None


def batch(layer_logits, correct=None, ids=None, questions=None, layers=4):
    n = len(layer_logits)
    rows = [[math.nan] * layers if row is NO_ANSWER else row for row in layer_logits]
    logits = np.array(rows, dtype=np.float32).reshape(n, layers)
    names = {"problem_ids": ids or ["p"] * n, "questions": questions or ["q"] * n}
    return rollouts(["8"] * n, accuracy=correct, layer_logits=logits, **names)


def at(*angles):
    """Four layer logits a rollout: the later half is a direction, the earlier half differs."""
    return [
        None if a is None else [i + 50.0, -i, 10 * math.cos(a), 10 * math.sin(a)]
        for i, a in enumerate(angles)
    ]


def shaped(term, layer_logits, **kwargs):
    """Penalties (positive) of one call."""
    return (-call_term(term, batch(layer_logits, **kwargs))).tolist()


def worth(*sizes, alpha=0.1):
    return pytest.approx([alpha * math.log(size + 1) for size in sizes], abs=1e-9)


def partition(labels):
    return {tuple(np.flatnonzero(np.array(labels) == name)) for name in set(labels)}


def golden_settings(params):
    values = {k: v for k, v in params.items() if k != "layers"}
    if values["last_n"] is None:  # all layers there, half of them here
        values["last_n"] = params["layers"]
    return Meds.released(**values)


@pytest.mark.parametrize("case", GOLDEN, ids=lambda case: case["name"])
def test_released_reading_reproduces_the_released_code(case):
    term = ClusterPenalty(golden_settings(case["params"]))
    for step in case["steps"]:
        prompts = [step["prompt"]] * len(step["correct"])
        rollouts = batch(
            step["features"], step["correct"], prompts, prompts, case["params"]["layers"]
        )
        rewards = call_term(term, rollouts)
        assert term.last_sizes.tolist() == step["cluster_size"]
        np.testing.assert_allclose(-rewards, step["penalty"], atol=1e-6)
        labels = cluster(term.memory[prompt_key(step["prompt"])], term.settings)
        assert partition(labels.tolist()) == partition(step["labels_after"])
        if case["params"]["method"] == "hdbscan":
            noise = np.flatnonzero(np.array(step["labels_after"]) == NOISE)
            assert np.flatnonzero(labels == NOISE).tolist() == noise.tolist()


def test_presets_are_those_of_the_stored_runs():
    hashes = [recipe("meds", "MEDS", "tiny", 0, preset).hash for preset in ("paper", "released")]
    assert hashes == ["574c58dfc2", "839316f8dc"]
    assert Meds.paper() == Meds() and Meds.released(beta=0.04).beta == 0.04


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"alpha": -0.1}, "alpha is -0.1"), ({"beta": math.nan}, "beta is nan"),
        ({"last_n": 0}, "last_n is 0"), ({"min_cluster_size": 1}, "at least 2"),
        ({"near_identical": -1.0}, "near_identical is -1.0"), ({"logit": "lens"}, "normed, raw"),
        ({"method": "kmeans"}, "hdbscan, single"), ({"assignment": "vote"}, "joint, knn-history"),
    ],
)  # fmt: skip
def test_impossible_settings_are_refused(setting, message):
    with pytest.raises(UserError, match=message):
        Meds(**setting)


def test_penalty_of_each_size():
    table = [0, 0.0693, 0.1099, 0.1386, 0.1609, 0.1792, 0.1946, 0.2]
    np.testing.assert_allclose(penalty(np.arange(8), 0.1, 0.2), table, atol=5e-5)
    assert penalty(7, 0.1, 0.2) == penalty(1000, 0.1, 0.2) == 0.2
    assert penalty(7, 0.02, 0.04) == 0.04
    # the cap need not be two alpha
    np.testing.assert_allclose(penalty(np.array([1, 2]), 0.1, 0.08), [0.1 * math.log(2), 0.08])
    term = ClusterPenalty(Meds.paper(alpha=0.5, beta=0.6))
    assert math.copysign(1, term(batch(at(0.7)))[0]) == 1.0  # 0.0 and not -0.0
    assert shaped(term, at(0.7)) == worth(2, alpha=0.5)
    assert shaped(term, at(0.7)) == [0.6]


LOGITS = np.array([[1.0, 2.0, 4.0, 8.0, 16.0, 15.0]])


@pytest.mark.parametrize(
    ("settings", "values"),
    [
        ({}, [8, 16, 15]),  # the later half
        ({"last_n": 2}, [16, 15]),
        ({"diff": True}, [8, -1]),  # differences inside the last three layers
        ({"diff": True, "diff_layers": "all"}, [4, 8, -1]),  # the last three of five differences
        ({"diff": True, "last_n": 6, "diff_layers": "all"}, [1, 2, 4, 8, -1]),
        ({"diff_layers": "all"}, [8, 16, 15]),
    ],
)
def test_chosen_layers_and_differences(settings, values):
    raw = features(LOGITS, Meds(normalize=False, **settings))
    np.testing.assert_array_equal(raw, [values])
    unit = features(LOGITS, Meds(**settings))
    np.testing.assert_allclose(unit, [np.array(values) / np.linalg.norm(values)], rtol=1e-12)
    assert features(LOGITS[:, :5], Meds()).shape == (1, 2)  # half of five is two


def test_features_of_no_answer_and_of_zeros():
    rows = np.array([[math.nan] * 4, [5.0, 5.0, 0.0, 0.0], [0.0, 0.0, 3.0, 4.0]])
    np.testing.assert_array_equal(
        features(rows, Meds()), [[math.nan, math.nan], [0.0, 0.0], [0.6, 0.8]]
    )


def test_too_few_layers_are_refused():
    with pytest.raises(UserError, match="valid: 1 to 8"):
        features(np.ones((2, 8)), Meds(last_n=14))
    with pytest.raises(UserError, match="valid: 2 to 8"):
        features(np.ones((2, 8)), Meds(last_n=1, diff=True))


def test_half_precision_overflow_is_refused_not_taken_for_no_answer():
    rows = np.ones((5, 4))
    rows[0] = math.nan
    rows[2, 3] = math.nan
    rows[4, 0] = math.inf
    with pytest.raises(UserError, match="2 of 5 .*rollout 2"):
        ClusterPenalty()(batch(rows.tolist()))


def test_clusters_hold_history_and_new_ones():
    term = ClusterPenalty()
    assert shaped(term, at(0.0, 0.01, 1.5, 1.51)) == [0.0] * 4
    # joint clusters: 0, 0.01, 0.03 and 1.5, 1.51, 1.53, 1.57; 3.8 is alone
    assert shaped(term, at(0.03, 1.53, 3.8, 1.57)) == worth(3, 4, 0, 4)
    assert term.last_sizes.tolist() == [3, 4, 0, 4]
    assert term.last_labels[1] == term.last_labels[3] != term.last_labels[0]
    assert term.last_labels[2] == NOISE


def test_noise_is_free_however_much_of_it():
    term = ClusterPenalty()
    shaped(term, at(0.0, 1.0))
    assert shaped(term, at(2.0)) == [0.0]
    assert term.last_labels.tolist() == [NOISE]
    paid = ClusterPenalty(Meds.paper(penalize_noise=True))
    shaped(paid, at(0.0, 1.0))
    assert shaped(paid, at(2.0)) == worth(3)


def test_everybody_making_the_same_mistake_pays_beta():
    for angles in ([0.7] * 20, np.linspace(0.7, 0.71, 20)):
        term = ClusterPenalty(Meds.paper(first_visit_free=False))
        assert shaped(term, []) == []
        assert shaped(term, at(*angles)) == [0.2] * 20
        assert set(term.last_labels) == {0}


def test_first_visit_is_free_and_the_second_is_not():
    term = ClusterPenalty()
    assert shaped(term, at(*[0.7] * 8)) == [0.0] * 8
    assert term.last_labels.tolist() == [NOT_CLUSTERED] * 8
    assert shaped(term, at(0.7)) == [0.2]
    # another prompt has its own first visit; both groups of a prompt in one call are one visit
    assert shaped(term, at(0.7, 0.7, 0.7), ids=["b", "p", "b"]) == [0.0, 0.2, 0.0]
    assert shaped(term, at(0.7), ids=["b"]) == worth(3)
    term = ClusterPenalty()  # without a wrong rollout it is a visit, too
    assert shaped(term, at(0.7, 0.7), correct=[1, 1]) == [0.0, 0.0]
    assert shaped(term, at(0.7, 0.7)) == worth(2, 2)


def test_right_rollouts_and_those_without_an_answer_are_no_part_of_any_cluster():
    term = ClusterPenalty()
    shaped(term, at(0.7, 0.7, 0.7), correct=[0, 1, 1])
    assert shaped(term, at(0.7, 0.7, NO_ANSWER, NO_ANSWER), correct=[1, 0, 0, 1]) == worth(
        0, 2, 0, 0
    )
    assert term.last_labels.tolist() == [NOT_CLUSTERED, 0, NOT_CLUSTERED, NOT_CLUSTERED]
    assert len(term.memory["p"]) == 2


def test_key_is_the_id_under_paper_and_the_text_under_released():
    assert prompt_key("x<3 and y>2") == prompt_key("x2") == prompt_key("x<br>2")
    assert prompt_key(" a \n\t b ") == prompt_key("a b") != prompt_key("ab")
    confused = {"ids": ["a", "b"], "questions": ["x<3 and y>2", "x<5 or z>2"]}
    apart = {"ids": ["a", "a"], "questions": ["one", "two"]}
    for settings, joined, split in (
        (Meds.paper(), apart, confused), (Meds.released(), confused, apart)
    ):
        term = ClusterPenalty(settings)
        shaped(term, at(0.7, 0.7), **joined)
        assert [len(stored) for stored in term.memory.values()] == [2]
        term = ClusterPenalty(settings)
        shaped(term, at(0.7, 0.7), **split)
        assert [len(stored) for stored in term.memory.values()] == [1, 1]


def test_a_visit_without_a_wrong_rollout_is_kept_in_the_state():
    term, loaded = ClusterPenalty(), ClusterPenalty()
    shaped(term, at(0.7), correct=[1])
    loaded.load_state_dict(term.state_dict())
    assert shaped(loaded, at(0.7, 0.7)) == worth(2, 2)


def test_the_memory_is_no_part_of_the_settings():
    term = ClusterPenalty(Meds.released())
    shaped(term, at(0.7))
    assert term == ClusterPenalty(Meds.released()) != ClusterPenalty()
    assert hash(term) == hash(ClusterPenalty(Meds.released()))


def test_missing_layer_logits_name_the_remedy():
    with pytest.raises(UserError, match="must record"):
        ClusterPenalty()(rollouts(["8"]))
