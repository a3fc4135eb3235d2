"""Diversity by exact diagnosis: hand-counted groups of rollouts."""

import math

import pandas as pd
import pytest

from paperlib.errors import UserError
from paperlib.evaluation.exact_diversity import (
    across_step,
    diagnosed,
    diversity_scores,
    error_measures,
    novelty,
    pair_diversity,
    responses,
    solution_path,
    within_step,
)
from paperlib.tasks.tiny.problems import tiny_split

PROBLEM = next(p for p in tiny_split("tiny-test") if p.level == 1 and p.steps[0][0] == "+")
[(A, _, B, SUM)] = PROBLEM.chain()


def written(op="+", result=SUM, answer=None, lead=""):
    return f"{lead}{A}{op}{B}={result}\n\\boxed{{{result if answer is None else answer}}}"


RIGHT = written()
SLIP = written(result=SUM + 30)
OPERATION = written(op="-", result=A - B)
COPY = written(answer=SUM + 1)
NO_BOX = f"{A}+{B}={SUM}\nThe answer is {SUM}."


def frame(*steps):
    """Diagnosed rollouts of one problem: one list of completions a step, from step 1."""
    rows = [(step, PROBLEM.id, text, float(text in (RIGHT, written(lead="First, "))))
            for step, texts in enumerate(steps, start=1) for text in texts]
    columns = ["step", "problem_id", "completion", "accuracy"]
    return diagnosed(pd.DataFrame(rows, columns=columns))


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
    out = frame([RIGHT, SLIP, OPERATION, COPY, NO_BOX])
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


def test_within_step_over_all_and_over_wrong_rollouts():
    group = [RIGHT, written(lead="First, "), SLIP, SLIP, OPERATION, COPY]
    [row] = within_step(frame(group)).to_dict("records")
    # three rollouts write the true path, two slip alike: 3 + 1 of 15 pairs
    assert row["path"] == pytest.approx(1 - 4 / 15)
    assert row["wrong_category"] == row["wrong_answer"] == pytest.approx(1 - 1 / 6)
    one_wrong = within_step(frame([RIGHT, SLIP])).iloc[0]
    assert one_wrong["path"] == 1 and math.isnan(one_wrong["wrong_path"])


def test_across_step_compares_neighbouring_visits_about_an_epoch_apart():
    rollouts = frame([RIGHT, SLIP], [RIGHT, OPERATION], [OPERATION, SLIP])
    pairs = across_step(rollouts, {1: 0.9, 2: 1.9, 3: 2.1})
    # visits 2 and 3 are 0.2 epochs apart: no pair
    assert pairs[["earlier", "later", "problem_id"]].values.tolist() == [[1, 2, PROBLEM.id]]
    assert pairs["path"].tolist() == [0.5] and pairs["wrong_path"].tolist() == [1]
    assert across_step(rollouts, {1: 1, 2: 4, 3: 7}).empty


def test_error_measures_by_step():
    out = error_measures(frame([RIGHT, SLIP, SLIP, OPERATION], [RIGHT, SLIP]), "arithmetic_slip")
    assert out["step"].tolist() == [1, 2]
    assert out["habit"].tolist() == [pytest.approx(2 / 3), 1]
    assert out["same_category"].iloc[0] == out["same_answer"].iloc[0] == pytest.approx(1 / 3)
    assert math.isnan(out["same_category"].iloc[1])  # one wrong rollout repeats nothing
    assert out["path"].tolist() == [pytest.approx(5 / 6), 1]


def test_scores_use_shared_groups_from_the_second_epoch_on():
    alike, apart = [RIGHT, RIGHT, SLIP, SLIP], [RIGHT, SLIP, OPERATION, written(result=SUM + 40)]
    a, b = frame(alike, alike, alike), frame(alike, apart)  # b has no third step
    epochs = {1: 1.0, 2: 2.0, 3: 3.0}
    out = diversity_scores({"A": a, "B": b}, {"A": epochs, "B": epochs}).set_index("method")
    assert out["groups"].tolist() == [1, 1] and out["pairs"].tolist() == [2, 1]
    assert out["within_path"].tolist() == [pytest.approx(2 / 3), 1]
    assert out["across_path"].tolist() == [0, 0.5]
    assert out["within_category"].tolist() == [0, pytest.approx(2 / 3)]


def test_responses_of_evaluations_by_step():
    problem = {"id": PROBLEM.id, "responses": [RIGHT, SLIP], "grades": [1, 0]}
    out = responses({0: {"problems": [problem]}, 16: {"problems": [problem]}})
    assert out["step"].tolist() == [0, 0, 16, 16]
    assert out["completion"].tolist() == [RIGHT, SLIP] * 2
    assert out["accuracy"].tolist() == [1, 0, 1, 0]
    assert responses({}).empty
