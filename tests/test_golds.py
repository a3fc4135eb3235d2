"""The grader against the gold answers of the real test sets: each right against its own box, and
wrong against the next different one."""

import pytest

from paperlib.tasks.data import load_problems
from paperlib.tasks.grading import gold_answer, grade_all, unreadable_golds

pytestmark = pytest.mark.usefixtures("real_data")
SETS = ("gsm8k-test", "math500", "aime24", "amc23", "minerva", "olympiadbench")
# Right for a reader too: the question of the first asks for x.
EQUAL_NEIGHBOURS = {("5", "x=5")}


def golds(name):
    return [problem.answer for problem in load_problems(name)]


@pytest.mark.parametrize("name", SETS)
def test_every_gold_is_right_in_its_own_box(name):
    answers = golds(name)
    verdicts = grade_all([f"So \\boxed{{{gold}}}." for gold in answers], answers)
    assert [gold for gold, right in zip(answers, verdicts, strict=True) if not right] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", SETS)
def test_every_gold_is_wrong_against_the_next_different_one(name):
    answers = golds(name)
    normal = [gold_answer(gold) for gold in answers]
    following = [
        next(other for other in normal[i + 1 :] + normal[:i] if other != normal[i])
        for i in range(len(normal))
    ]
    verdicts = grade_all([f"\\boxed{{{answer}}}" for answer in following], answers)
    pairs = zip(normal, following, verdicts, strict=True)
    assert {(a, b) for a, b, right in pairs if right} <= EQUAL_NEIGHBOURS


@pytest.mark.slow
def test_golds_rewritten_without_spaces_and_with_other_fractions_stay_right():
    """Not the same text any more: normal forms and symbolic mathematics have to see it."""
    answers = [gold for name in ("math500", "olympiadbench") for gold in golds(name)]
    rewritten = [
        gold.replace(r"\frac", r"\dfrac").replace(", ", ",").replace("(", r"\left(")
        .replace(")", r"\right)").replace("+", " + ") for gold in answers
    ]
    verdicts = grade_all([f"\\boxed{{{text}}}" for text in rewritten], answers)
    wrong = [gold for gold, right in zip(answers, verdicts, strict=True) if not right]
    assert len(wrong) <= 0.005 * len(answers), wrong


@pytest.mark.slow
def test_golds_that_only_their_own_text_equals_are_few():
    counts = {name: len(unreadable_golds(golds(name))) for name in SETS}
    assert counts == {"gsm8k-test": 0, "math500": 0, "aime24": 0, "amc23": 0, "minerva": 10,
                      "olympiadbench": 2}  # fmt: skip
