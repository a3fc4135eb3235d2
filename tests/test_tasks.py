"""Data, prompts, answer extraction and grading."""

import json

import pytest

from paperlib.errors import UserError
from paperlib.rl.collect import PromptStream
from paperlib.tasks.data import Problem, load_problems
from paperlib.tasks.grading import extract_answer, find_answer, grade


@pytest.mark.parametrize(
    ("completion", "answer"),
    [
        ("<reasoning>\n1\n</reasoning>\n<answer>\n 42\n</answer>\n", "42"),
        ("<answer>1</answer> no, <answer>2</answer>", "2"),
        ("<answer>8", None),  # never closed
        ("<answer>  </answer>", None),
        ("\\boxed{3} <answer>4</answer>", "4"),  # a section counts before a box
        ("so \\boxed{12}. Wait: \\boxed{17}.", "17"),
        ("first \\boxed{8}, then \\boxed{11", None),  # not the earlier guess
        ("8 then \\boxed{}", None),
        ("\\boxed{\\frac{1}{2}}", "\\frac{1}{2}"),
        ("\\boxed{\\{1,2\\}}", "\\{1,2\\}"),
        ("<think>Try \\boxed{8}.</think> \\boxed{9}", "9"),
        ("<think>maybe \\boxed{8}, but", None),  # thinking never closes
        ("<think>Try \\boxed{8}.</think><answer>9</answer>", "9"),
        ("<think>8</think><answer></answer>", None),
        ("7", None),
        ("", None),
    ],
)
def test_extract_answer(completion, answer):
    assert extract_answer(completion) == answer
    span = find_answer(completion)
    assert (span is None) == (answer is None)
    if span:
        assert completion[slice(*span)] == answer


@pytest.mark.parametrize(
    ("answer", "gold", "right"),
    [
        ("29", "29", True), ("029", "29", True), ("29.0", "29", True), ("$29.", "29", True),
        ("1,250", "1250", True), ("-3", "3", False), ("30", "29", False), ("12,17", "1217", False),
        ("two", "Two", True), ("x + 1", "x+1", True), ("noel", "leon", False),
        ("9" * 5000, "9" * 5000, True), ("9" * 5000, "9" * 4999 + "8", False),
        ("inf", "inf ", True), ("1e5", "100000", True),
    ],
)  # fmt: skip
def test_grade(answer, gold, right):
    assert grade(f"<answer>{answer}</answer>", gold) is right
    assert grade(f"\\boxed{{{answer}}}", gold) is right


def test_jsonl_data(tmp_path):
    path = tmp_path / "data.jsonl"
    rows = [{"id": "a", "question": "1+1?", "answer": 2}, {"question": "2+2?", "answer": "4"}]
    path.write_text("\n".join(map(json.dumps, rows)) + "\n\n")
    assert load_problems(str(path)) == [Problem("a", "1+1?", "2"), Problem("2", "2+2?", "4")]


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([{"question": "q", "answer": ""}, {"question": "r"}, {"question": "s", "answer": "1"}],
         "2 rows with no gold answer: 1, 2"),
        ([{"id": 1, "question": "q", "answer": "1"}] * 2, "1 rows with an id used before: 1"),
        ([{"answer": "1"}], "line 1: not a problem"),
        ([], "is empty"),
    ],
)  # fmt: skip
def test_bad_data_is_counted_and_named(tmp_path, rows, says):
    path = tmp_path / "bad.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    with pytest.raises(UserError) as error:
        load_problems(str(path))
    assert says in str(error.value)


def test_unknown_data_set_names_the_valid_ones():
    with pytest.raises(UserError, match="tiny-train"):
        load_problems("tiny-tset")
    with pytest.raises(UserError, match="does not exist"):
        load_problems("nowhere.jsonl")


def test_stream_leaves_no_problem_out_and_resumes():
    problems = [Problem(str(i), "q", "1") for i in range(5)]
    stream = PromptStream(problems, [[i] for i in range(5)], seed=3)
    drawn = [stream.next(2) for _ in range(5)]
    flat = sum(drawn, [])
    assert sorted(flat[:5]) == sorted(flat[5:]) == list(range(5))  # two whole epochs
    again = PromptStream(problems, stream.prompt_ids, seed=3, drawn=4)
    assert again.next(2) == drawn[2]
    assert PromptStream(problems, stream.prompt_ids, seed=4).next(5) != flat[:5]
