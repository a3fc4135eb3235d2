"""Which answers are equal: every kind of spelling, number and collection, with its near misses, and
the gold answers of the real test sets."""

import csv
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paperlib.tasks import symbolic
from paperlib.tasks.answers import equal
from paperlib.tasks.data import load_problems
from paperlib.tasks.grading import gold_answer, grade, grade_all, unreadable_golds
from paperlib.tasks.units import counted, split_unit, unit_of

with (Path(__file__).parent / "answers.tsv").open(encoding="utf-8") as file:
    # right, wrong, or refused: right for a reader, but not seen
    PAIRS = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
RIGHT = [(row["gold"], row["answer"]) for row in PAIRS if row["verdict"] == "right"]
NUMBERS = st.one_of(
    st.integers(-2000, 2000).map(str),
    st.decimals(-99, 99, places=2, allow_nan=False).map(str),
    st.tuples(st.integers(-30, 30), st.integers(2, 30)).map(
        lambda f: rf"\frac{{{f[0]}}}{{{f[1]}}}"
    ),
)


@pytest.mark.parametrize("verdict", ["right", "wrong", "refused"])
def test_every_kind(verdict):
    rows = [row for row in PAIRS if row["verdict"] == verdict]
    verdicts = grade_all([f"\\boxed{{{row['answer']}}}" for row in rows], [r["gold"] for r in rows])
    expected = verdict == "right"
    other = [row for row, paid in zip(rows, verdicts, strict=True) if paid != expected]
    assert len(rows) >= 10 and other == []


def test_units_are_a_closed_list_and_what_the_question_counts():
    for text in ("m/s", "m s^{-1}", r"\text{m s^{-1}}", "meters per second", "mps"):
        assert unit_of(text) == "m s^-1"
    assert unit_of("square centimeters") == unit_of("cm^2") == unit_of("sq. cm") == "cm^2"
    assert unit_of("mph") == unit_of("miles per hour") and unit_of("or more") == unit_of("xy") == ""
    assert split_unit("5 m") == ("5", "m") and split_unit("5m") == ("5m", "")
    question = "How many more wombats than red kangaroos are there?"
    assert counted(question) == {"more", "wombat", "than"}
    assert grade(r"\boxed{5 \text{ wombats}}", "5", question=question)
    assert not grade(r"\boxed{5 \text{ wombats}}", "5")
    both = grade_all([r"\boxed{5 wombats}"] * 2, ["5", "6"], questions=[question] * 2)
    assert both == [True, False]
    assert not grade(r"\boxed{2 \text{ dozen}}", "2")
    assert grade(r"\boxed{2 \text{ dozen}}", "2", question="How many dozen eggs does she buy?")


def test_most_pairs_need_no_symbolic_mathematics(monkeypatch):
    monkeypatch.setattr(symbolic, "_ask", lambda *pair: pytest.fail(f"{pair} went to the workers"))
    for gold, answer in (("72", "71"), ("72", "72.0"), ("1,250", "$1250"), ("7", "7 apples"),
                         ("12", "1 2 3"), ("Leon", "Noel"), ("(1,2)", "(1,3)"), ("3, 5", "5, 3")):
        equal(gold, answer)


DRESS = st.sampled_from([
    lambda t: f" {t} ", lambda t: rf"\,{t}\;", lambda t: f"{{{t}}}", lambda t: f"{t}.",
    lambda t: f"${t}$", lambda t: rf"\boxed{{{t}}}", lambda t: rf"\displaystyle {t}",
    lambda t: re.sub(r"(?<!\\left)\(", r"\\left(", re.sub(r"(?<!\\right)\)", r"\\right)", t)),
])  # fmt: skip


@given(st.sampled_from(PAIRS), DRESS)
def test_dress_never_changes_a_verdict(pair, dress):
    gold, answer = pair["gold"], pair["answer"]
    plain = grade(f"\\boxed{{{answer}}}", gold)
    assert grade(f"\\boxed{{{dress(answer)}}}", gold) == plain
    assert grade(f"\\boxed{{{answer}}}", dress(gold)) == plain


@given(NUMBERS, NUMBERS)
def test_numbers_are_equal_both_ways_or_not_at_all(one, other):
    assert equal(one, one) and equal(one, other) == equal(other, one)


@given(NUMBERS, NUMBERS, st.sampled_from([
    "apples", "cm", "m/s", "dollars", "million", "dozen", "or more", "squared", "halves", "x", "xy",
    "pi", "or", "and a half", "percent", "degrees", "thousand", "sqrt(2)", "i", "!", "e", "kg m",
]), st.booleans())  # fmt: skip
def test_a_wrong_number_never_becomes_right_by_a_word_behind_it(gold, number, word, dressed):
    answer = rf"{number} \text{{ {word}}}" if dressed else f"{number} {word}"
    if grade(f"\\boxed{{{answer}}}", gold):
        scale = {"million": 10**6, "thousand": 1000, "dozen": 12, "percent": 0.01}.get(word, 1)
        assert equal(gold, number) or equal(gold, f"{number}*{scale}") or number in ("0", "0.00")


@given(st.sampled_from(RIGHT), st.sampled_from(RIGHT))
def test_one_of_two_answers_is_no_answer(pair, other):
    """A shotgun of answers earns nothing where one of them is right."""
    (gold, answer), (rival, _) = pair, other
    separate = [separator for separator in (" or ", ", ", "; ") if separator.strip() not in gold]
    choice = re.match(r"(\\text\{)?\(?[A-E]\b", gold)  # of which the letter alone counts
    if separate and "or" not in gold and not choice and not equal(gold, rival):
        assert not grade(f"\\boxed{{{answer}{separate[0]}{rival}}}", gold)


# --- the gold answers of the real test sets

SETS = ("gsm8k-test", "math500", "aime24", "amc23", "minerva", "olympiadbench")


@pytest.mark.parametrize("name", SETS)
def test_every_gold_is_right_in_its_own_box(real_data, name):
    golds = [problem.answer for problem in load_problems(name)]
    verdicts = grade_all([f"So \\boxed{{{gold}}}." for gold in golds], golds)
    assert [gold for gold, right in zip(golds, verdicts, strict=True) if not right] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", SETS)
def test_every_gold_is_wrong_against_the_next_different_one(real_data, name):
    golds = [problem.answer for problem in load_problems(name)]
    normal = [gold_answer(gold) for gold in golds]
    following = [
        next(other for other in normal[i + 1 :] + normal[:i] if other != gold)
        for i, gold in enumerate(normal)
    ]
    verdicts = grade_all([f"\\boxed{{{answer}}}" for answer in following], golds)
    pairs = zip(normal, following, verdicts, strict=True)
    # right for a reader too: the question asks for x
    assert {(a, b) for a, b, right in pairs if right} <= {("5", "x=5")}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["math500", "olympiadbench"])
def test_golds_rewritten_without_spaces_and_with_other_fractions_stay_right(real_data, name):
    """Not the same text any more: normal forms and symbolic mathematics have to see it."""
    golds = [problem.answer for problem in load_problems(name)]
    rewritten = [
        gold.replace(r"\frac", r"\dfrac").replace(", ", ",").replace("(", r"\left(")
        .replace(")", r"\right)").replace("+", " + ") for gold in golds
    ]
    verdicts = grade_all([f"\\boxed{{{text}}}" for text in rewritten], golds)
    wrong = [gold for gold, right in zip(golds, verdicts, strict=True) if not right]
    assert len(wrong) <= 0.005 * len(golds), wrong


@pytest.mark.slow
def test_golds_that_only_their_own_text_equals_are_few(real_data):
    counts = {name: len(unreadable_golds([p.answer for p in load_problems(name)])) for name in SETS}
    few = {"minerva": 10, "olympiadbench": 2}
    assert counts == {name: few.get(name, 0) for name in SETS}
