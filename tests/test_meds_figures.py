"""Numbers behind MEDS, Fig. 3, and that the figure shows them."""

import numpy as np
import pandas as pd
import pytest

from paperlib.methods.meds import Meds
from paperlib.report import layer_curves


def wrong_rollouts():
    """One prompt, one answer: two slips not far from each other, one skipped step far away."""
    logits = [[0, 0, 3, 4], [0, 0, 4, 3], [0, 0, -3, 4]]
    return pd.DataFrame({
        "problem_id": "p", "category": ["slip", "slip", "skip"], "answer": "7", "path": [1, 2, 3],
        "layer_logits": [np.array(row, dtype=np.float32) for row in logits],
    })  # fmt: skip


def test_pair_distances_by_hand():
    rows = layer_curves.pair_distances(wrong_rollouts(), Meds.paper())
    kinds = rows.set_index(["category", "kind"])
    assert set(kinds.index) == {(category, kind) for category in ("same", "other")
                                for kind in ("all", "distinct", "one answer")}  # no other token
    same, other = kinds.loc[("same", "all")], kinds.loc[("other", "one answer")]
    assert (same["pairs"], other["pairs"]) == (1, 2)
    assert same["feature"] == pytest.approx(np.sqrt(2) / 5)  # (3, 4) and (4, 3) over 5
    assert other["feature"] == pytest.approx((6 / 5 + np.sqrt(49 + 1) / 5) / 2)
    assert [same[layer] for layer in (1, 2, 3, 4)] == [0, 0, 1, 1]
    assert [other[layer] for layer in (1, 2, 3, 4)] == [0, 0, 6.5, 0.5]


def test_pair_distances_without_copies_and_by_answer():
    def kinds(**columns):
        rows = layer_curves.pair_distances(wrong_rollouts().assign(**columns), Meds.paper())
        return set(rows.loc[rows["category"] == "same", "kind"])

    assert kinds(path=[1, 1, 3]) == {"all"}  # one answer by one path: a copy
    assert kinds(path=[1, 1, 3], answer=["7", "71", "7"]) == {"all", "distinct"}
    assert kinds(answer=["7", "17", "7"]) == {"all", "distinct", "other token"}


def test_closer_is_a_ratio_over_prompts_that_have_both_kinds():
    rows = pd.DataFrame(
        [("p", "same", 1.0), ("p", "other", 2.0), ("q", "same", 2.0), ("q", "other", 4.0),
         ("r", "same", 99.0)], columns=["problem_id", "category", "feature"])  # fmt: skip
    assert layer_curves.closer(rows.assign(kind="all"), "all") == pytest.approx(-50)
    assert layer_curves.closer(rows.assign(kind="all"), "distinct") is None
    assert layer_curves.closer(rows.iloc[3:].assign(kind="all"), "all") is None  # no prompt


def test_later_spread_weighs_pairs():
    rows = layer_curves.pair_distances(wrong_rollouts(), Meds.paper())
    for layer in (1, 2):
        rows[layer] = 1.0
    # layers 3 and 4 over the three pairs: (1 + 2 * 6.5) / 3 and (1 + 2 * 0.5) / 3
    assert layer_curves.later_spread(rows) == pytest.approx(100 * ((14 + 2) / 6 - 1))


def test_example_prompt_prefers_several_large_categories():
    counts = {("a", "slip"): 9, ("b", "slip"): 2, ("b", "skip"): 2, ("c", "slip"): 3,
              ("c", "skip"): 2}
    rows = [pair for pair, count in counts.items() for _ in range(count)]
    wrong = pd.DataFrame(rows, columns=["problem_id", "category"])
    assert layer_curves.example_prompt(wrong, least=2) == "c"
    assert layer_curves.example_prompt(wrong, least=20) == "a"  # none: the most rollouts


def test_fig3_draws_the_prompt_and_the_distances():
    distances = layer_curves.pair_distances(wrong_rollouts(), Meds.paper())
    figure = layer_curves.layer_logits(wrong_rollouts(), distances, kept=2)
    labels = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert labels == ["slip (2)", "skip (1)"]
    assert figure.axes[2].get_lines()[0].get_ydata().tolist() == [0, 0, 1, 1]
    assert len(figure.axes[3].patches) == 6
