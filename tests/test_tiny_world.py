"""The tiny world: deterministic, disjoint splits, and errors that can be told apart exactly."""

import random
from collections import Counter

import pytest

from paperlib.errors import UserError
from paperlib.tasks.data import Problem
from paperlib.tasks.grading import extract_answer
from paperlib.tasks.tiny.problems import (
    LEVELS,
    SPLITS,
    TinyProblem,
    draw_problem,
    tiny_problem,
    tiny_split,
)
from paperlib.tasks.tiny.solutions import (
    HABITS,
    diagnose,
    draw_solution,
    write_solution,
)

PROBLEM = TinyProblem(
    id="p", question="", answer="52", level=3, subject="apples",
    start=17, steps=(("+", 15), ("-", 6), ("*", 2)),
)


def test_splits_are_disjoint_and_levels_even():
    questions = [p.question for split in SPLITS for p in tiny_split(split)]
    assert len(set(questions)) == len(questions)
    for split, per_level in SPLITS.items():
        assert Counter(p.level for p in tiny_split(split)) == {k: per_level for k in LEVELS}
        assert all(len(p.steps) == p.level for p in tiny_split(split))
    assert 120 <= len(tiny_split("tiny-train")) <= 160
    assert tiny_problem("tiny-test-007") == tiny_split("tiny-test")[7]
    with pytest.raises(UserError, match="none of the tiny world"):
        tiny_problem("gsm8k-test-7")
    with pytest.raises(UserError, match="none of the tiny world"):
        diagnose(Problem("gsm8k-test-7", "2 + 2?", "4"), "<answer>5</answer>")


def test_problem_texts_are_frozen():
    # The shipped weights, every run and every committed table rest on these problems.
    assert tiny_split("tiny-train")[64].question == (
        "Dan has 38 coins. Dan gets 4 more. Dan finds 17 more. Dan gives away 8. "
        "How many coins does Dan have?"
    )


@pytest.mark.parametrize("prompt", ["tags", "boxed"])
def test_diagnose_is_exact_for_every_planted_habit(prompt):
    rng, seen = random.Random(0), Counter()
    for _ in range(600):
        problem = draw_problem(rng, rng.choice(LEVELS))
        for habit in ("none", *HABITS):
            completion = write_solution(rng, problem, prompt, habit)
            if completion is not None:
                seen[habit] += 1
                expected = "correct" if habit == "none" else habit
                assert diagnose(problem, completion) == expected, completion
    assert min(seen.values()) > 80


def tags(reasoning: str, answer: str) -> str:
    return f"<reasoning>\n{reasoning}\n</reasoning>\n<answer>\n{answer}\n</answer>\n"


@pytest.mark.parametrize(
    ("completion", "category"),
    [
        (tags("17+15=32\n32-6=26\n26*2=52", "52"), "correct"),
        (tags("Step 1: 17+15=22\nStep 2: 22-6=16\nStep 3: 16*2=32", "32"), "dropped_carry"),
        (tags("17+15=33\n33-6=27\n27*2=54", "54"), "arithmetic_slip"),
        (tags("17-15=2\n2-6=0\n0*2=0", "0"), "wrong_operation"),
        (tags("17+15=32\n32*2=64", "64"), "skipped_step"),
        (tags("17+15=32\n32-6=26", "26"), "skipped_step"),
        (tags("17+14=31\n31-6=25\n25*2=50", "50"), "misread_number"),
        (tags("16+15=31\n31-6=25\n25*2=50", "50"), "misread_number"),
        (tags("17+15=32\n32-6=26\n26*2=52", "25"), "miscopied_answer"),
        (tags("17+15=32\n32-6=26\n26*2=52\nLet me check: 1+1=2", "25"), "miscopied_answer"),
        ("<reasoning>\n17+15=32\n32-6=26\n26*2=52\n</reasoning>\nAnswer: 52\n", "broken_format"),
        (tags("dunno", "7"), "other"),
        ("", "broken_format"),
    ],
)
def test_diagnose_by_hand(completion, category):
    assert diagnose(PROBLEM, completion) == category


@pytest.mark.parametrize("prompt", ["tags", "boxed"])
def test_drawn_solutions_are_right_about_half_the_time(prompt):
    rng = random.Random(1)
    right = [
        extract_answer(draw_solution(rng, p, prompt)) == p.answer
        for p in tiny_split("tiny-train") for _ in range(20)
    ]
    assert 0.45 < sum(right) / len(right) < 0.65
