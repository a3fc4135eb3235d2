"""Diversity by exact diagnosis: hand-counted groups of rollouts."""

import math

import pandas as pd
import pytest

from paperlib.errors import UserError
from paperlib.evaluation.diversity import (
    diagnosed,
    novelty,
    pair_diversity,
    solution_path,
)
from paperlib.tasks.tiny.problems import tiny_split

PROBLEM = next(p for p in tiny_split("tiny-test") if p.level == 1 and p.steps[0][0] == "+")
[(A, _, B, SUM)] = PROBLEM.chain()


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
    assert out["answer"].tolist() == [
        str(SUM), str(SUM + 30), str(A - B), str(SUM + 1), ""
    ]  # fmt: skip
    assert out["path"].iloc[0] == out["path"].iloc[3] != out["path"].iloc[1]


def test_diagnosed_refuses_another_world():
    rollouts = pd.DataFrame({"step": [1], "problem_id": ["gsm8k-1"], "completion": ["4"],
                             "accuracy": [0.0]})
    with pytest.raises(UserError, match="gsm8k-1.*tiny world"):
        diagnosed(rollouts)
