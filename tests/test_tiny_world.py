"""The tiny world: disjoint splits, errors that can be told apart exactly, and shipped weights that
are right about half the time, make every error, and tell texts and paths apart."""

import random
from collections import Counter

import numpy as np
import pytest

from paperlib.errors import UserError
from paperlib.rl.policy import end_tokens, load_policy, pad_token
from paperlib.rl.sampling import sample_groups
from paperlib.tasks.grading import grade
from paperlib.tasks.prompts import build_prompt
from paperlib.tasks.rows import Problem
from paperlib.tasks.tiny import ENCODER_DIR
from paperlib.tasks.tiny.build import solution_pair
from paperlib.tasks.tiny.problems import (
    LEVELS,
    SPLITS,
    TinyProblem,
    draw_problem,
    tiny_problem,
    tiny_split,
)
from paperlib.tasks.tiny.solutions import HABITS, TRAPS, diagnose, draw_solution, write_solution

PROMPTS = pytest.mark.parametrize("prompt", ["tags", "boxed"])
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
    # the shipped weights, every run and every committed table rest on these problems
    assert tiny_split("tiny-train")[64].question == (
        "Dan has 38 coins. Dan gets 4 more. Dan finds 17 more. Dan gives away 8. "
        "How many coins does Dan have?"
    )


@PROMPTS
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


@pytest.mark.parametrize(("completion", "category"), [
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
])
def test_diagnose_by_hand(completion, category):
    assert diagnose(PROBLEM, completion) == category


# --- the shipped weights


@pytest.fixture(scope="module")
def policy():
    return load_policy("tiny")


def sample(policy, problems, prompt, n):
    """``n`` texts for each problem, and which were truncated."""
    model, tokenizer = policy
    texts, truncated = [], []
    for start in range(0, len(problems), 256 // n):
        part = problems[start : start + 256 // n]
        samples = sample_groups(
            model, [build_prompt(tokenizer, p.question, prompt) for p in part], n,
            max_completion_length=80, temperature=1.0, top_p=1.0, seed=0,
            eos_token_ids=end_tokens(model, tokenizer), pad_token_id=pad_token(tokenizer),
        )
        texts += tokenizer.batch_decode(samples.completion_ids, skip_special_tokens=True)
        truncated += samples.truncated.tolist()
    return texts, truncated


@PROMPTS
def test_base_is_right_about_half_the_time_but_in_traps_and_stops(policy, prompt):
    problems = tiny_split("tiny-test")
    texts, truncated = sample(policy, problems, prompt, 2)
    right = np.array([grade(t, p.answer)
                      for p, t in zip(np.repeat(problems, 2), texts, strict=True)])
    trap = np.repeat([p.subject in TRAPS for p in problems], 2)
    assert 0.35 < np.mean(right) < 0.60 and np.mean(truncated) < 0.02
    assert right[trap].mean() < 0.40 < 0.45 < right[~trap].mean()
    assert np.mean([("</answer>" if prompt == "tags" else "\\boxed") in t for t in texts]) > 0.8


@PROMPTS
def test_the_weak_base_hardly_ever_keeps_the_format(prompt):
    """The condition of Memory-R+: few rollouts of a group are rewarded at all, but some are."""
    problems = tiny_split("tiny-validation")
    texts, _ = sample(load_policy("tiny-weak"), problems, prompt, 4)
    end = "</answer>" if prompt == "tags" else "\\boxed"
    right = [grade(t, p.answer) for p, t in zip(np.repeat(problems, 4), texts, strict=True)]
    assert 0.02 < np.mean(right) < 0.2 and 0.05 < np.mean([end in t for t in texts]) < 0.4


@pytest.mark.slow
@PROMPTS
def test_every_problem_is_within_reach_and_every_habit_is_there(policy, prompt):
    problems = tiny_split("tiny-test")
    texts, _ = sample(policy, problems, prompt, 32)
    found = [diagnose(p, t) for p, t in zip(np.repeat(problems, 32), texts, strict=True)]
    assert (np.reshape(found, (-1, 32)) == "correct").any(1).mean() > 0.9  # pass@32
    share = Counter(found)
    wrong = len(found) - share["correct"]
    assert all(share[habit] / wrong > 0.01 for habit in HABITS), share


def test_tokenizer_round_trip_and_single_digits(policy):
    _, tokenizer = policy
    rng = random.Random(0)
    texts = ["", " a  b\n\n", "é漢字🙂", "\\boxed{12}", "<answer>\n7\n</answer>\n"]
    for _ in range(200):
        problem = draw_problem(rng, rng.choice(LEVELS))
        texts += [problem.question, draw_solution(rng, problem, rng.choice(("tags", "boxed")))]
    for text in texts:
        ids = tokenizer.encode(text, add_special_tokens=False)
        assert tokenizer.decode(ids) == text
        assert all(len(s) == 1 for s in map(tokenizer.decode, ids) if s.strip().isdigit())


def test_encoder_tells_the_same_path_from_others():
    from sentence_transformers import SentenceTransformer

    encoder = SentenceTransformer(str(ENCODER_DIR), device="cpu")
    rng = random.Random(7)
    same = [solution_pair(rng) for _ in range(150)]
    left, right = (encoder.encode(list(side)) for side in zip(*same, strict=True))
    assert np.allclose(np.linalg.norm(left, axis=1), 1, atol=1e-5)
    positive = (left * right).sum(1)

    others = []  # the same problem solved right, and with a habit
    while len(others) < 150:
        problem, habit = draw_problem(rng, rng.choice(LEVELS)), rng.choice(HABITS)
        pair = [write_solution(rng, problem, "tags", h) for h in ("none", habit)]
        others += [pair] if pair[1] else []
    left2, right2 = (encoder.encode(list(side)) for side in zip(*others, strict=True))
    for negative in ((left * np.roll(right, 1, axis=0)).sum(1), (left2 * right2).sum(1)):
        assert (positive[:, None] > negative[None]).mean() > 0.8  # the area under the curve


def test_loaded_weights_are_aligned(policy):
    # as they lie in the file they are not, and matrix products then round differently from those
    # of a model that was never saved: a resumed run would drift from an uninterrupted one
    model, _ = policy
    assert all(p.data_ptr() % 64 == 0 for p in model.parameters())
