"""Reward terms of the baselines, with hand-computed values."""

import math

import pytest
from rollout_batches import rollouts

from paperlib.errors import UserError
from paperlib.methods.baselines import (
    Correctness,
    CosineLength,
    IntegerAnswer,
    Overlong,
    ReasoningSteps,
    SoftFormat,
    StrictFormat,
    XmlCount,
)
from paperlib.methods.rollouts import call_term

ONE_LINE = "<reasoning>\nAdd.\n</reasoning>\n<answer>\n7\n</answer>\n"
LINES = "<reasoning>\nAdd.\nThen stop.\n</reasoning>\n<answer>\n7\n</answer>\n"
INLINE = "<reasoning>Add.\nThen stop.</reasoning> <answer>7</answer>"


def pay(term, *completions, **fields):
    return call_term(term, rollouts(completions, **fields)).tolist()


def test_correctness_by_grader_and_by_string():
    texts = ("<answer>7.0</answer>", "<answer>7</answer>", "7", "<answer>8</answer>")
    accuracy = [1.0, 1.0, 0.0, 0.0]
    assert pay(Correctness(), *texts, accuracy=accuracy) == [1.0, 1.0, 0.0, 0.0]
    assert pay(Correctness(value=2.0), *texts, accuracy=accuracy) == [2.0, 2.0, 0.0, 0.0]
    assert pay(Correctness(rule="string"), *texts, accuracy=accuracy) == [0.0, 1.0, 1.0, 0.0]


def test_integer_needs_digits_only():
    texts = [f"<answer>\n{x}\n</answer>" for x in ("12", "-12", "1,200", "12.0", "12 apples", "")]
    assert pay(IntegerAnswer(), *texts) == [0.5, 0.0, 0.0, 0.0, 0.0, 0.0]
    assert pay(IntegerAnswer(), "7") == [0.0]


def test_xmlcount_paper():
    head, end = "<reasoning>\n", "\n</reasoning>\n<answer>\n7\n</answer>"
    long = head + "x" * (390 - len(head) - len(end)) + end
    tail = "12345"
    texts = (
        ONE_LINE,  # all four tags
        ONE_LINE[:-1],  # no final newline: nothing follows the closing tag
        long,
        ONE_LINE + tail,  # five characters, counted in both answer parts
        ONE_LINE[:-1] + tail,  # the same without the newline between
        "<reasoning>\nAdd.\n</reasoning>\n<answer>\n7",  # never closed: three tags, no tail
        INLINE,
        "",
        ONE_LINE * 2,  # repeated tags earn nothing
    )
    expected = [0.5, 0.5, 0.5, 0.49, 0.49, 0.375, 0.0, 0.0, 0.0]
    assert pay(XmlCount(), *texts) == pytest.approx(expected)
    assert pay(XmlCount("released"), long) == pytest.approx([0.111])  # the tail is the whole text
    for tail in ("", "\n", "\nI hope this helps.", "x" * 300):
        released = pay(XmlCount("released"), LINES + tail)
        assert pay(XmlCount(), LINES + tail) == pytest.approx(released)


@pytest.mark.parametrize(("term", "right", "wrong"), [
    (StrictFormat(), [ONE_LINE, LINES], [  # no final newline; a section holds no further tag
        LINES[:-1], LINES + "bye", "\n" + LINES, LINES * 2, INLINE,
    ]),
    (SoftFormat(), [INLINE, LINES + "bye"], [  # it must start with the tag
        " " + INLINE, INLINE.replace("</reasoning> ", "</reasoning> so "),
        "<reasoning>Add.</reasoning><answer>7",
        # these would hang a backtracking pattern
        "<reasoning>" + "<answer>" * 20_000, "<reasoning>" + "\n" * 100_000,
    ]),
])  # fmt: skip
def test_formats(term, right, wrong):
    assert pay(term, *right, *wrong) == [0.5] * len(right) + [0.0] * len(wrong)


def test_think_tags():
    think = LINES.replace("reasoning>", "think>")
    for term in (XmlCount, SoftFormat, StrictFormat):
        assert pay(term(tag="think"), think) == [0.5]
        assert pay(term(), think) != [0.5]


def test_reasoning_steps():
    texts = (
        "Step 1: add. Step 2: stop.",
        "1. add\n2. stop",  # a number counts at the very start only
        "First, a. Second, b. Next, c. Finally, d.",
        "List:\n- a\n* b",
        "Nothing.",
    )
    assert pay(ReasoningSteps(), *texts) == pytest.approx([2 / 3, 1 / 3, 1.0, 2 / 3, 0.0])


def test_cosine_length_paper_is_clamped_tokens():
    term = CosineLength(200)
    lengths, right = [0, 50, 100, 200, 400], [1.0] * 5
    mid = 0.75 + 0.25 * math.cos(math.pi / 4)
    expected = [1.0, mid, 0.75, 0.5, 0.5]
    texts = ["x"] * 5
    assert pay(term, *texts, lengths=lengths, accuracy=right) == pytest.approx(expected)
    # longer wrong answers lose less
    assert pay(term, *texts, lengths=lengths) == pytest.approx([-x for x in expected])


def test_cosine_length_released_repeats_every_400_characters():
    texts = ["7" + " " * (n - 1) for n in (100, 200, 300, 500, 900)]
    paid = pay(CosineLength.released(), *texts, lengths=[1] * 5)
    assert paid == pytest.approx([0.75, 0.5, 0.75, 0.75, 0.75])


def test_overlong_boundaries():
    term = Overlong(max_length=100, buffer=20)
    lengths = [0, 79, 80, 81, 90, 99, 100, 101, 500]
    paid = pay(term, *["x"] * 9, lengths=lengths)
    assert paid == pytest.approx([0, 0, 0, -0.05, -0.5, -0.95, -1, -1, -1])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Correctness(rule="regex"), "unknown rule 'regex'; valid: math, string"),
        (lambda: XmlCount("papers"), "valid: paper, released"),
        (lambda: SoftFormat("released", "think"), "'reasoning' only"),
        (lambda: CosineLength(0), "max_length is 0"),
        (lambda: Overlong(100, 101), "buffer is 101; it must be from 1 to max_length = 100"),
    ],
)
def test_wrong_settings_are_refused(make, message):
    with pytest.raises(UserError, match=message):
        make()
