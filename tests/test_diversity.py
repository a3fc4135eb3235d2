"""Diversity, of vectors and by exact diagnosis, against values by hand."""

import math

import numpy as np
import pandas as pd
import pytest

from paperlib.errors import UserError
from paperlib.evaluation.diversity import (
    diagnosed,
    novelty,
    pair_diversity,
    pairwise_diversity,
    solution_path,
    tfidf_vectors,
)
from paperlib.tasks.tiny.problems import tiny_split

PROBLEM = next(p for p in tiny_split("tiny-test") if p.level == 1 and p.steps[0][0] == "+")
[(A, _, B, SUM)] = PROBLEM.chain()


def test_mean_over_pairs_not_over_samples():
    # at 0, 60 and 90 degrees: cosines 1/2, 0 and cos 30
    vectors = [[1, 0], [0.5, math.sqrt(0.75)], [0, 1]]
    expected = 100 * (1 - (0.5 + 0 + math.sqrt(0.75)) / 3)
    assert pairwise_diversity(np.array([vectors])) == pytest.approx([expected])


def test_one_number_a_question_whatever_the_length_of_the_vectors():
    alike, apart, opposite = [[1, 0], [3, 0]], [[1, 0], [0, 7]], [[1, 1], [-2, -2]]
    found = pairwise_diversity(np.array([alike, apart, opposite]))
    assert found == pytest.approx([0, 100, 200])
    assert (found >= 0).all()  # rounding must not give -0.0000001


def test_texts_without_tokens_are_alike_and_unlike_all_others():
    vectors = tfidf_vectors(["", "\n", "six", "", "", "six"]).reshape(2, 3, -1)
    # pairs of "", "", six: alike, unlike, unlike
    assert pairwise_diversity(vectors) == pytest.approx([200 / 3, 200 / 3])
    assert pairwise_diversity(tfidf_vectors([" ", ""]).reshape(1, 2, -1)) == pytest.approx([0])


def test_tfidf_by_hand_with_signs_and_single_digits():
    a, b, c = tfidf_vectors(["5+3=8", "5-3=2", "5+3=8"])
    assert a @ c == pytest.approx(1) and 0.1 < a @ b < 0.9
    rare = 1 + math.log(3 / 2)  # the idf of a word of one text of two; 1 that of a word of both
    a, b = tfidf_vectors(["x y", "X z"])
    assert a @ b == pytest.approx(1 / (1 + rare**2))


def test_what_cannot_be_measured_is_refused():
    for vectors in (np.ones((4, 1, 3)), np.ones((4, 3)), np.full((1, 2, 2), np.nan)):
        with pytest.raises(UserError, match="of finite values with at least 2 samples"):
            pairwise_diversity(vectors)


def written(op="+", result=SUM, answer=None):
    return f"{A}{op}{B}={result}\n\\boxed{{{result if answer is None else answer}}}"


def test_solution_path_leaves_out_wording_checks_and_the_answer():
    plain = "12+5=17\n17*2=34\n\\boxed{34}"
    told = "First, 12+5=17\nFinally, 17*2=34\nLet me check: 17-5=12\nThe answer is 9."
    assert solution_path(plain) == ((12, "+", 5, 17), (17, "*", 2, 34)) == solution_path(told)
    assert solution_path("no equation") == ()


def test_pair_diversity_counts_pairs_without_replacement():
    assert pair_diversity(["a", "a", "b"]) == pytest.approx(2 / 3)
    assert pair_diversity(["a", "b"]) == 1 and pair_diversity(["a", "a"]) == 0
    assert math.isnan(pair_diversity(["a"])) and math.isnan(pair_diversity([]))


def test_novelty_is_the_share_of_later_members_unseen_before():
    assert novelty(["a", "b"], ["b", "c", "c"]) == pytest.approx(2 / 3)
    assert novelty(["a"], ["a", "a"]) == 0 and novelty(["a", "b"], ["c"]) == 1
    assert math.isnan(novelty([], ["a"])) and math.isnan(novelty(["a"], []))


def test_diagnosed_tells_category_path_and_answer():
    texts = [written(), written(result=SUM + 30), written(op="-", result=A - B),
             written(answer=SUM + 1), f"{A}+{B}={SUM}\nThe answer is {SUM}."]
    out = diagnosed(pd.DataFrame({"problem_id": PROBLEM.id, "completion": texts}))
    assert out["category"].tolist() == [
        "correct", "arithmetic_slip", "wrong_operation", "miscopied_answer", "broken_format"
    ]  # fmt: skip
    assert out["answer"].tolist() == [*map(str, (SUM, SUM + 30, A - B, SUM + 1)), ""]
    assert out["path"].iloc[0] == out["path"].iloc[3] != out["path"].iloc[1]
    with pytest.raises(UserError, match="gsm8k-1.*tiny world"):
        diagnosed(pd.DataFrame({"problem_id": ["gsm8k-1"], "completion": ["4"]}))
