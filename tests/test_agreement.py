"""Pair agreement of two groupings, its chance-corrected forms and its intervals."""

from itertools import permutations

import numpy as np
import pandas as pd
import pytest

from paperlib.errors import UserError
from paperlib.evaluation.agreement import PAIRS, agreement, pair_counts

# Prompt p: pairs 01 (both), 02 and 12 (cluster only), 03 and 13 (neither), 23 (neither).
# Prompt q: one pair, same category, other cluster. Prompt r: a single rollout, no pair.
CATEGORIES = ["carry", "carry", "copy", "other", "carry", "carry", "copy"]
CLUSTERS = [0, 0, 0, 1, 0, 1, 0]
PROMPTS = ["p", "p", "p", "p", "q", "q", "r"]


def test_pairs_by_hand():
    counts = pair_counts(CATEGORIES, CLUSTERS, PROMPTS)
    assert counts[PAIRS].to_dict("index") == {
        "p": {"both": 1, "category": 0, "cluster": 2, "neither": 3},
        "q": {"both": 0, "category": 1, "cluster": 0, "neither": 0},
    }
    # p: kappa 2 (1*3 - 0*2) / ((1)(3) + (3)(5)) = 6/18
    assert counts.loc["p", "ari"] == pytest.approx(1 / 3)
    assert np.isnan(counts.loc["q", "ari"])  # one category only: nothing to tell apart
    found = agreement(counts)["value"]
    assert found["agreement"] == pytest.approx(4 / 7)  # 1 + 3 of 7 pairs
    assert found["kappa"] == pytest.approx(2 * (1 * 3 - 1 * 2) / (2 * 4 + 3 * 5))
    assert found["ari"] == pytest.approx(1 / 3)
    # shuffled: p has one category pair and three cluster pairs of 6, so both 1/2, neither 5/2
    assert found["chance"] == pytest.approx((1 / 2 + 5 / 2) / 7)


def test_noise_is_alone_or_together():
    data = ["a", "a", "b"], [-1, -1, 0], ["p"] * 3
    assert pair_counts(*data)[PAIRS].iloc[0].tolist() == [0, 1, 0, 2]
    assert pair_counts(*data, noise="together")[PAIRS].iloc[0].tolist() == [1, 0, 0, 2]
    with pytest.raises(UserError, match="noise"):
        pair_counts(*data, noise="dropped")


def test_equal_groupings_and_a_single_cluster():
    categories, prompts = ["a", "a", "b", "b"], ["p"] * 4
    perfect = agreement(pair_counts(categories, [5, 5, 2, 2], prompts))["value"]
    assert perfect[["agreement", "kappa", "ari"]].tolist() == [1, 1, 1]
    single = agreement(pair_counts(categories, [0] * 4, prompts))["value"]
    # 2 of 6 pairs share the category; a cluster for all is chance, whatever its agreement
    assert single.tolist() == pytest.approx([1 / 3, 0, 0, 1 / 3])


def test_chance_is_the_mean_over_all_shuffles():
    categories, clusters = ["a", "a", "b", "c"], [0, 0, 1, -1]
    shuffled = np.concatenate(list(permutations(clusters)))  # each of the 24 as a prompt
    mean = pair_counts(categories * 24, shuffled, np.repeat(np.arange(24), 4))[PAIRS].mean()
    expected = pair_counts(categories, clusters, ["p"] * 4)["expected"].iloc[0]
    assert expected == pytest.approx(mean["both"] + mean["neither"])


def test_interval_is_over_prompts():
    # ten prompts agree wholly, ten not at all
    categories, prompts = ["a", "a"] * 20, np.repeat(np.arange(20), 2)
    clusters = [0, 0] * 10 + [0, 1] * 10
    one = pair_counts(categories, clusters, prompts)
    found = agreement(one).loc["agreement"]
    assert found["value"] == 0.5
    # the standard error of a share of 20 is 0.11
    assert 0.22 < found["low"] < 0.35 and 0.65 < found["high"] < 0.78
    # a second seed on the same prompts is no further prompt: the interval must not shrink
    pd.testing.assert_frame_equal(agreement(pd.concat([one, one])), agreement(one))


def test_no_pair_at_all():
    counts = pair_counts(["a", "b"], [0, 0], ["p", "q"])
    assert len(counts) == 0 and agreement(counts).isna().all(axis=None)
    assert len(pair_counts([], [], [])) == 0
    with pytest.raises(UserError, match="2 categories, 1 clusters and 2 prompts"):
        pair_counts(["a", "b"], [0], ["p", "q"])
