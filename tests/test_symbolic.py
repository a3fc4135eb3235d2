"""The guards around symbolic mathematics: hostile answers cost little and break nothing."""

import multiprocessing
import os
from contextlib import nullcontext

import pytest

from paperlib.tasks import symbolic
from paperlib.tasks.grading import grade, grade_all

HUGE = [
    r"10^{10^{10}}", "10**10**10", r"9^{9^{9}}", "100000000!", r"\binom{10^9}{5*10^8}",
    r"2^{2^{36}}", r"(10^9)!", r"((5!)!)!", "20!!", r"e^{e^{e^{10}}}", r"e^{10^{10}}",
    r"3^{3^{3^{3}}}", r"\sum_{k=1}^{10^9} k", r"\prod_{k=1}^{100000} k", r"\sqrt[1000000]{2}",
    r"(x+1)^{1000000}", r"10^{-10^{10}}", r"\left(\frac{1}{3}\right)^{9999999}", "1" * 400,
    "+".join(["x"] * 600), "{" * 100 + "x" + "}" * 100, r"10^{20!}", r"2^{10000000}",
    r"(2^{100000}+1)^{3}", r"\sin(10^{1000000})", r"e^{e^{20}}", r"x^{x^{x^{x}}}",
    r"\frac{1}{10^{10^6}}", r"\sum_{k=1}^{10^5} \frac{1}{k}", r"\prod_{k=1}^{500} k",
    r"\binom{100000}{50000}", r"(x+y+z)^{90}", r"(a+b+c+d)^{160}", "-" * 300 + "1",
    "(" * 14 + "1" + ")" * 14,
    r"\sqrt{2}^{\sqrt{2}^{\sqrt{2}}}", "1+" * 200 + "1", r"\frac{" * 20 + "1" + "}{2}" * 20,
    r"\sqrt{" * 30 + "2" + "}" * 30, r"\lfloor 10^{5000}/7\rfloor", r"\Gamma(10^8)",
    "9^" * 40 + "9",
]  # fmt: skip
FINE = [
    r"2^{1009}", r"\frac{100!}{2^{50}}", r"10^{100}", r"\binom{2n}{n}", r"\frac{(2n)!}{n!n!}",
    r"e^{-\frac{t}{R C}}", r"x^{2^{n}}", r"e^{-x^{2}}", r"\frac{1}{1502!}", r"2^{2 \cdot 5^{2}}",
    r"\frac{d !}{2 k(d-k) !}", r"\sum_{k=1}^{n} k^2", r"\sqrt[3]{7}", r"(x+1)^{10}",
]  # fmt: skip


@pytest.mark.parametrize("text", FINE)
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
    assert len(hostile) * 3 >= 120 and processor_seconds() - started < 10
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


def test_a_verdict_is_remembered(monkeypatch):
    asked = []
    monkeypatch.setattr(symbolic, "_ask", lambda *pair: asked.append(pair) or "1")
    symbolic._verdict.cache_clear()
    assert [symbolic.equivalent("u+u", "2u") for _ in range(3)] == [True] * 3
    assert len(asked) == 1
    symbolic._verdict.cache_clear()


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
