"""Which text is graded, in which mode, and that a verdict is the same wherever it is asked for."""

import signal
import threading
import time

import pytest

from paperlib.errors import UserError
from paperlib.tasks.grading import extract_answer, find_answer, gold_answer, grade


@pytest.mark.parametrize("gold, completion, right", [
    # the gold is trusted and may be bare LaTeX
    (r"\dfrac{9}{11}", r"So the ratio is \boxed{\dfrac{9}{11}}.", True),
    (r"\dfrac{9}{11}", r"\boxed{\dfrac{9}{13}}", False),
    # the last box wins; boxes in a row are one list
    ("17", r"We get \boxed{12}. Wait, that is off; it is \boxed{17}.", True),
    ("12", r"We get \boxed{12}. Wait, that is off; it is \boxed{17}.", False),
    ("12,17", r"We get \boxed{12}. Wait, that is off; it is \boxed{17}.", False),
    ("17", r"\boxed{15} or \boxed{16} or \boxed{17}", False),
    ("17", r"$\boxed{15}$, $\boxed{17}$", False),
    ("3,5", r"\boxed{3} and \boxed{5}", True),
    ("3,5", r"$x = \boxed{3}$ or $\boxed{5}$", True),
    # not closed, or empty
    ("8", r"first \boxed{8}, then I rechecked and got \boxed{11", False),
    ("8", r"8 then \boxed{}", False),
    ("8", r"\boxed{8} and \boxed{ }", False),
    ("8", r"the answer is \boxed{8", False),
    ("8", r"\boxed{\boxed{8}}", True),
    ("8", r"\boxed 8.", True),
    ("8", r"\fbox{8}", True),
    (r"\frac{1}{2}", r"\boxed {\frac{1}{2}}", True),
    # sections and thinking
    ("8", r"<think>Try \boxed{8}.</think><answer>9</answer>", False),
    ("8", "<think>5 or 6</think><answer>8</answer>", True),
    ("8", r"<think>maybe \boxed{8}, but let me check", False),
    ("8", "<think>8</think><answer></answer>", False),
    ("8", "<think>so <answer>8</answer> or not", False),
    ("8", r"<think>\boxed{9}</think> So \boxed{8}.", True),
    ("9", r"thinking that the prompt opened, \boxed{8}</think> \boxed{9}", True),
    ("8", r"thinking that the prompt opened, \boxed{8}</think> so", False),
    ("8", r"<answer>The result is \boxed{8}.</answer>", True),
    ("8", r"<answer>\boxed{8</answer>", False),
    ("8", "<answer>8", False),
    ("8", "<answer>8</answer> <answer>9</answer>", False),
    ("8", "8", False),
    # what is thought is no answer, whatever marks it
    ("9", "<think><answer>9</answer></think>", False),
    ("8", r"<think><answer>9</answer></think>\boxed{8}", True),
    ("8", "<answer>8</answer><think>hm <answer>9</answer></think>", True),
    ("8", "<think><answer>9</answer></think><answer>8</answer>", True),
    ("8", r"<think>Try \boxed{8}.</think>It is 9.", False),
    ("8", r"<thinking>Try \boxed{8}.</thinking>It is 9.", False),
    ("8", r"<THINK>Try \boxed{8}.</THINK>It is 9.", False),
    ("8", r"[THINK]Try \boxed{8}.[/THINK]It is 9.", False),
    ("9", r"[THINK]Try \boxed{8}.[/THINK]It is \boxed{9}.", True),
    ("8", r"<|channel|>analysis<|message|>Try \boxed{8}.<|end|><|start|>assistant"
          "<|channel|>final<|message|>It is 9.", False),
    ("8", r"Try \boxed{8}.</reasoning>It is 9.", False),
    ("8", "<reasoning>never closed <answer>8</answer>", True),
    ("8", "<reasoning>6</reasoning><answer>8</answer> a stray </reasoning>", True),
    ("8", r"from the prompt \boxed{8}</think><think>9</think> so", False),
    ("8", "<reasoning>9 <answer>9</answer></reasoning><answer>8</answer>", True),
    # a gold of several boxes is all of them, an empty one is never right
    (r"\boxed{3} and \boxed{5}", r"\boxed{5}", False),
    (r"\boxed{3} and \boxed{5}", r"\boxed{5, 3}", True),
    ("", r"\boxed{}", False), (" ", "<answer> </answer>", False),
    (r"\boxed{}", r"\boxed{1}", False),
    # how numbers and words may be written: answers.tsv; the same in a section
    ("4200000", r"\boxed{4.2e6}", True), ("100000", "<answer>1e5</answer>", True),
    ("1217", "<answer>12,17</answer>", False), ("29", "<answer>$29.</answer>", True),
    ("3", "<answer>-3</answer>", False), ("Two", "<answer>two</answer>", True),
    ("x+1", "<answer>x + 1</answer>", True), ("inf ", "<answer>inf</answer>", True),
    (r"\text{(D) }12", r"\boxed{D}", True), (r"\text{(D) }12", r"\boxed{12}", True),
    (r"\text{(D) }12", r"\boxed{E}", False),
    # golds of GSM8K
    ("3*4=<<3*4=12>>12\n#### 1,250", r"\boxed{1250}", True),
])
def test_math(gold, completion, right):
    assert grade(completion, gold) is right


@pytest.mark.parametrize("gold, completion, right", [
    ("12+17=29\n#### 29", "the total is $29.00.", True),
    ("#### 1,250", "She earns $1,250.", True),
    ("#### 5", "The answer is 5...", True),
    ("#### 42", "#### 42\n" + "That settles it. " * 3000, True),
    ("#### 7", "#### 7\n\nQuestion: what is 4+5?\n#### 9", True),
    ("#### 9", "#### 7\n\nQuestion: what is 4+5?\n#### 9", False),
    ("#### 72", "It is 72, in total, right", True),
    ("73", "437 + 2*234 = 905\nFinal Answer: **73**", True),
    ("73", "It costs 12 and 905 in all.\nThe answer is 73. I used 4 steps.", False),
    (r"\frac{3}{4}", r"So it is $\frac{3}{4}$.", True),
    (r"\frac{3}{4}", "That leaves 3/4", True),
    ("18", "<answer>The total is 18 dollars</answer>", True),
    ("8", r"I said 8 and boxed \boxed{9}", False),
    ("8", r"8 then \boxed{", False),
    ("8", "<think>it is 8", False),
    ("8", "<answer>8", False),
    ("8", "no number at all", False),
])
def test_extractive(gold, completion, right):
    assert grade(completion, gold, "extractive") is right


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
    verdicts: dict[int, list[bool]] = {}
    threads = [
        threading.Thread(target=lambda n=n: verdicts.update(
            {n: [grade(completion, gold) for completion, gold, _ in pairs]}))
        for n in range(4)
    ]
    handler = signal.getsignal(signal.SIGALRM)
    signal.alarm(100)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert list(verdicts.values()) == [[right for *_, right in pairs]] * 4
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
    started = time.monotonic()
    for completion in (text * 20_000, f"<answer>{text * 20_000}</answer>",
                       f"\\boxed{{{text * 300}}}", text * 20_000 + "\\boxed{7}"):  # fmt: skip
        grade(completion, "43", mode)
        grade(completion, r"\frac{\sqrt{x}}{2}", mode)
    assert time.monotonic() - started < 8
