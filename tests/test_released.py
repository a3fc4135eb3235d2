"""The released readings reproduce the released functions on 80 texts."""

import json
from pathlib import Path

import numpy as np
import pytest

from paperlib.methods import released
from paperlib.methods.baselines import (
    Correctness,
    CosineLength,
    IntegerAnswer,
    SoftFormat,
    StrictFormat,
    XmlCount,
)
from paperlib.methods.rollouts import Rollouts, call_term
from paperlib.tasks.grading import grade

GOLDEN = json.loads(
    (Path(__file__).parent / "golden" / "memory_r_rewards_released.json").read_text("utf-8")
)


@pytest.fixture(scope="module")
def rollouts():
    n = len(GOLDEN)
    return Rollouts(
        step=1,
        num_generations=n,
        problem_ids=["p"] * n,
        questions=["q"] * n,
        golds=[case["gold"] for case in GOLDEN],
        completions=[case["completion"] for case in GOLDEN],
        lengths=np.ones(n, dtype=int),
        truncated=np.zeros(n, dtype=bool),
        accuracy=np.full(n, 0.5),  # must not matter: the released code grades by string
        max_completion_length=200,
    )


def test_golden_texts():
    assert len(GOLDEN) == 80
    for case in GOLDEN:
        assert released.answer_text(case["completion"]) == case["answer_text"]
        assert released.reasoning_text(case["completion"]) == case["reasoning_text"]


@pytest.mark.parametrize(
    ("field", "term"),
    [
        ("correctness", Correctness(rule="string")),
        ("integer", IntegerAnswer("released")),
        ("xmlcount", XmlCount("released")),
        ("soft_format", SoftFormat("released")),
        ("strict_format", StrictFormat("released")),
        ("cosine", CosineLength.released()),
    ],
)
def test_golden_rewards(rollouts, field, term):
    expected = [case[field] for case in GOLDEN]
    assert len(set(expected)) > 1  # the trace tells something
    np.testing.assert_allclose(call_term(term, rollouts), expected, rtol=0, atol=1e-9)
    assert term.name == field


def test_a_bare_digit_is_correct_and_an_integer():
    assert grade("7", "7", "strict")
    assert released.integer("7") == 0.5
    assert released.integer("-7") == 0.0


def test_equality_is_of_strings():
    assert not grade("<answer>1,000</answer>", "1000", "strict")
    assert not grade("<answer>29.0</answer>", "29", "strict")


def test_no_term_compares_on_its_own(monkeypatch):
    asked = []

    def grade_all(completions, golds, mode):
        asked.append((completions, golds, mode))
        return [False] * len(golds)

    monkeypatch.setattr("paperlib.methods.baselines.grade_all", grade_all)
    one = Rollouts(
        step=1, num_generations=1, problem_ids=["p"], questions=["q"], golds=[""],
        completions=[""], lengths=np.zeros(1, int), truncated=np.ones(1, bool),
        accuracy=np.zeros(1), max_completion_length=8,
    )  # fmt: skip
    assert call_term(Correctness("string"), one).tolist() == [0.0]
    assert call_term(CosineLength.released(), one).tolist() == [-1.0]
    assert asked == [([""], [""], "strict")] * 2


def test_xmlcount_without_final_newline_counts_the_whole_text():
    head, tail = "<reasoning>\n", "\n</reasoning>\n<answer>\n7\n</answer>"
    text = head + "x" * (390 - len(head) - len(tail)) + tail
    assert len(text) == 390
    # 4 x 0.125, less 0.001 x 390 for the "tail", plus the thousandth for nothing after the tag
    assert released.xmlcount(text) == pytest.approx(0.111)
    assert released.xmlcount(text + "\n") == pytest.approx(0.5)


def test_formats_stop_at_line_ends_and_exclude_each_other():
    inline = "<reasoning>a</reasoning> <answer>7</answer>"
    one_line = "<reasoning>\na\n</reasoning>\n<answer>\n7\n</answer>\n"
    lines = one_line.replace("a\n", "a\nb\n", 1)
    assert [released.soft_format(t) for t in (inline, one_line, lines)] == [0.5, 0.0, 0.0]
    assert [released.strict_format(t) for t in (inline, one_line, lines)] == [0.0, 0.5, 0.0]
