"""Which text is graded, in which mode; hostile answers cost little and break nothing."""

import multiprocessing
import os
import signal
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path

import pytest

from paperlib.errors import UserError
from paperlib.tasks import symbolic
from paperlib.tasks.grading import extract_answer, find_answer, gold_answer, grade, grade_all

CASES = tomllib.loads((Path(__file__).parent / "grading.toml").read_text("utf-8"))
CASES["extractive"] += [["#### 42", "#### 42\n" + "That settles it. " * 3000, True]]
HUGE = [
    *CASES["huge"], "1" * 400, "+".join(["x"] * 600), "{" * 100 + "x" + "}" * 100, "-" * 300 + "1",
    "1+" * 200 + "1", r"\frac{" * 20 + "1" + "}{2}" * 20, r"\sqrt{" * 30 + "2" + "}" * 30,
    "9^" * 40 + "9",
]  # fmt: skip


@pytest.mark.parametrize("mode, gold, completion, right", [
    (mode, *case) for mode in ("math", "extractive") for case in CASES[mode]
])  # fmt: skip
def test_what_is_graded(mode, gold, completion, right):
    assert grade(completion, gold, mode) is right


def test_strict_is_the_released_rule():
    assert grade("<answer>\n1000\n</answer>", "1000", "strict")
    assert not grade("<answer>1,000</answer>", "1000", "strict")
    assert grade("1000", "1000", "strict") and not grade("1000", "1000", "math")
    assert not grade("", "", "strict") and not grade("<answer></answer>", "", "strict")
    with pytest.raises(UserError, match="math, extractive, strict"):
        grade("1", "1", "lenient")


def test_spans_point_at_the_answer():
    text = r"<think>\boxed{1}</think> so $\boxed{ \frac{1}{2} }$ or \boxed{3}"
    start, end = find_answer(text)
    assert text[start:end] == "3" and extract_answer(text) == r"\frac{1}{2}, 3"
    assert find_answer("<answer> 12 </answer>") == (9, 11)
    assert gold_answer(r"so $\boxed{5}$") == "5" and gold_answer("a #### 1,250") == "1,250"


def test_every_thread_gives_the_same_verdict_and_no_signal_is_touched():
    pairs = [(r"\boxed{2}", "2", True), (r"\boxed{x+x}", "2x", True),
             (r"\boxed{10^{10^{10}}}", "43", False), (r"\boxed{3x}", "2x", False)]
    completions, golds, right = zip(*pairs, strict=True)
    handler = signal.getsignal(signal.SIGALRM)
    signal.alarm(100)
    try:
        with ThreadPoolExecutor(4) as threads:
            assert tuple(threads.map(grade, completions * 4, golds * 4)) == right * 4
        assert signal.getsignal(signal.SIGALRM) is handler
        assert 50 < signal.alarm(0) <= 100
    finally:
        signal.alarm(0)


def test_answers_are_never_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for code in (r"\pi + __import__('os').system('touch MARK')", "open('MARK', 'w')",
                 r"\text{__import__('os').system('touch MARK')}", "eval(\"open('MARK','w')\")"):
        assert not grade(f"\\boxed{{{code}}}", r"2\pi")
        assert not grade(f"<answer>{code}</answer>", "7", "extractive")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("mode", ["math", "extractive"])
@pytest.mark.parametrize("text", [
    "<think>", "</think>", "<answer>", "<reasoning>", "\\boxed{", "\\boxed{1} or ", "\\(", "$",
    "$1", "{", "}", "1 a ", "1,", "9", "\\frac{1}{", "####", "answer is ", "\\text{a", "(((",
    "\\pm 1", " and ", "^2", "!", "\\left(", "\u0000", "\U0001f600", "x+", "1e9",
])  # fmt: skip
def test_long_nonsense_is_graded_in_no_time_and_never_raises(text, mode):
    started = time.process_time()
    for completion in (text * 20_000, f"<answer>{text * 20_000}</answer>",
                       f"\\boxed{{{text * 300}}}", text * 20_000 + "\\boxed{7}"):  # fmt: skip
        grade(completion, "43", mode)
        grade(completion, r"\frac{\sqrt{x}}{2}", mode)
    assert time.process_time() - started < 8


# --- guards around symbolic mathematics


@pytest.mark.parametrize("text", CASES["fine"])
def test_ordinary_expressions_are_compared(text):
    assert symbolic.equivalent(text, f"{text}+0") and not symbolic.equivalent(text, f"{text}+1")


def processor_seconds():
    """Of this process and of its workers, which are ended so that they count."""
    while symbolic._free:
        symbolic._free.pop().communicate()
    return sum(os.times()[:4])


def test_a_hostile_batch_is_quick_wrong_and_counted(recwarn):
    symbolic._verdict.cache_clear()
    before = symbolic.failures.copy()
    started = processor_seconds()
    hostile = [rf"\boxed{{{text}}}" for text in HUGE]
    for gold in ("43", r"\frac{\sqrt{x}}{2}", "2"):
        assert not any(grade_all(hostile, [gold] * len(hostile)))
    assert len(hostile) * 3 >= 120 and processor_seconds() - started < 20
    assert (symbolic.failures - before).total() >= 40
    said = [str(w.message) for w in recwarn]
    assert all("could not be compared" in message for message in said)


def test_what_takes_too_long_is_killed_and_the_next_request_is_answered():
    """Not refused by its size, but endless: only a process can be stopped in it."""
    symbolic._verdict.cache_clear()
    before = symbolic.failures["it took too long or too much memory"]
    with nullcontext() if before else pytest.warns(RuntimeWarning, match="too long"):
        assert not grade(r"\boxed{((a+b)^2-a^2-2ab+c+d+p+q+r)^{99}+1}",
                         "(b^2+c+d+p+q+r)^{99}+1")
    assert symbolic.failures["it took too long or too much memory"] == before + 1
    assert grade(r"\boxed{x+x}", "2x")


def test_a_forked_process_has_workers_of_its_own():
    assert grade(r"\boxed{x+x}", "2x")
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.apply(grade, (r"\boxed{y+y}", "2y"))
    assert grade(r"\boxed{z+z}", "2z")


def test_a_killed_worker_is_replaced():
    symbolic._verdict.cache_clear()
    assert grade(r"\boxed{p+p}", "2p")
    workers = list(symbolic._free)
    for worker in workers:
        worker.kill()
        worker.wait()
    assert workers and grade(r"\boxed{q+q}", "2q")


def test_a_module_in_the_working_folder_is_not_run(tmp_path, monkeypatch):
    (tmp_path / "sympy.py").write_text("raise SystemExit('the wrong sympy')")
    (tmp_path / "paperlib.py").write_text("raise SystemExit('the wrong paperlib')")
    monkeypatch.chdir(tmp_path)
    worker = symbolic._start()
    assert worker.poll() is None
    worker.kill()
    worker.wait()
