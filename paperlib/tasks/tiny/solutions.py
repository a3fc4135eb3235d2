"""Worked solutions, right ones and ones with a planted error habit, and how to tell which.

The base model learns from these, so it makes these errors; each thing that is counted has a
favourite habit, so a prompt's wrong rollouts tend to repeat one error, which is what MEDS is about.
"""

import random
import re

from paperlib.tasks.grading import extract_answer, grade
from paperlib.tasks.rows import Problem
from paperlib.tasks.tiny.problems import APPLY, THINGS, TinyProblem, tiny_problem

HABITS = (
    "wrong_operation",  # + for -, - for +, + for *
    "dropped_carry",  # adds or subtracts digit by digit, without carry or borrow
    "skipped_step",  # one event of the story is left out
    "misread_number",  # a number of the story is read as a neighbour
    "miscopied_answer",  # right reasoning, another number in the answer
    "broken_format",  # no answer in the format that was asked for
)
CATEGORIES = (*HABITS, "arithmetic_slip", "other")  # everything diagnose can say of a wrong answer
FAVOURITE = dict(zip(THINGS, HABITS, strict=True))
# of solutions by level, and of those the favourite habit's share; with the model's own slips the
# base is right about half the time
FLAWED, FAVOURITE_SHARE = {1: 0.38, 2: 0.45, 3: 0.50, 4: 0.55}, 0.6
# Where these are counted the habit, not the truth, is what the base says most often: greedy
# decoding errs, and a policy that only grows sharper grows worse.
TRAPS, TRAP_FLAWED, TRAP_SHARE = ("apples", "coins"), 0.8, 0.9
LAST = 0.8  # of the errors in a step are in the last one, so that a prompt's errors are alike

Step = tuple[int, str, int, int]  # value, operation, operand, result
_EQUATION = re.compile(r"(\d+)([+\-*])(\d+)=(\d+)")
_CHECK = re.compile(r"^Let me check:.*$", re.MULTILINE)


def without_carry(value: int, op: str, operand: int) -> int | None:
    """The result digit by digit, no carry or borrow; None for ``*`` or if that changes nothing."""
    if op == "*":
        return None
    tens, ones = APPLY[op](value // 10, operand // 10), APPLY[op](value % 10, operand % 10)
    result = 10 * (tens % 10) + ones % 10
    return None if result == APPLY[op](value, operand) else result


def draw_solution(
    rng: random.Random, problem: TinyProblem, prompt: str, broken: float = 0.0
) -> str:
    """A completion for the ``tags`` or ``boxed`` prompt: right with probability about
    1 - FLAWED[level], else with the thing's favourite habit or, less often, another one; a share
    ``broken`` before all else has no format."""
    if broken and rng.random() < broken:
        return write_solution(rng, problem, prompt, "broken_format")
    flawed, share = FLAWED[int(problem.level or 1)], FAVOURITE_SHARE
    if problem.subject in TRAPS:
        flawed, share = TRAP_FLAWED, TRAP_SHARE
    while True:  # a habit that the problem does not admit is drawn again
        habit = "none"
        if rng.random() < flawed:
            favourite = FAVOURITE[problem.subject]
            others = [h for h in HABITS if h != favourite]
            habit = favourite if rng.random() < share else rng.choice(others)
        if completion := write_solution(rng, problem, prompt, habit):
            return completion


def write_solution(
    rng: random.Random, problem: TinyProblem, prompt: str, habit: str
) -> str | None:
    """A completion that is right (``habit="none"``) or shows this habit; None if it cannot here
    (this draw has no carry to drop, a single step cannot be skipped...)."""
    steps = flawed_steps(rng, problem, habit)
    if steps is None:
        return None
    answer = steps[-1][3]
    if habit == "miscopied_answer":  # digits swapped, or the next number
        tens, ones = divmod(answer, 10)
        answer = 10 * ones + tens if tens and ones and tens != ones else answer + 1
    check = rng.random() < (0.15 if habit == "none" else 0.05)
    broken = habit == "broken_format"
    style, lines = rng.randrange(4), []
    words = ["First,", *["Next,"] * (len(steps) - 2), "Finally,"]
    for number, (value, op, operand, result) in enumerate(steps, start=1):
        lead = ("", f"Step {number}: ", f"{words[number - 1]} ", "- ")[style]
        lines.append(f"{lead}{value}{op}{operand}={result}")
    if check and op != "*":  # of the last step
        lines.append(f"Let me check: {result}{'-' if op == '+' else '+'}{operand}={value}")
    reasoning = "\n".join(lines)
    if prompt == "tags":
        end = f"Answer: {answer}\n" if broken else f"<answer>\n{answer}\n</answer>\n"
        return f"<reasoning>\n{reasoning}\n</reasoning>\n{end}"
    end = f"The answer is {answer}." if broken else f"\\boxed{{{answer}}}"
    return f"{reasoning}\n{end}"


def flawed_steps(rng: random.Random, problem: TinyProblem, habit: str) -> list[Step] | None:
    """The steps written down under a habit, later ones carried on from the error; None if the
    problem does not admit the habit or its answer would be right all the same."""
    plan = [*problem.steps]
    at = len(plan) - 1 if rng.random() < LAST else rng.randrange(len(plan))
    op, operand = plan[at]
    if habit == "wrong_operation":
        plan[at] = ({"+": "-", "-": "+", "*": "+"}[op], operand)
    elif habit == "misread_number":
        plan[at] = (op, operand + rng.choice((-1, 1)))
        if plan[at][1] in {problem.start, *(n for _, n in problem.steps)} or plan[at][1] < 2:
            return None
    elif habit == "skipped_step":
        if len(plan) == 1:
            return None
        del plan[at]
    steps, value = [], problem.start
    for index, (op, operand) in enumerate(plan):
        result: int | None = APPLY[op](value, operand)
        if habit == "dropped_carry" and index == at:
            result = without_carry(value, op, operand)
        if result is None or not 0 <= result <= 99:
            return None
        steps.append((value, op, operand, result))
        value = result
    changes_answer = habit in ("wrong_operation", "misread_number", "skipped_step", "dropped_carry")
    return None if changes_answer and str(value) == problem.answer else steps


def written_steps(completion: str) -> list[Step]:
    """The equations of a completion in their order, a check of the last one left out."""
    found = _EQUATION.findall(_CHECK.sub("", completion))
    return [(int(a), op, int(b), int(c)) for a, op, b, c in found]


def diagnose(problem: Problem, completion: str) -> str:
    """``correct`` or the true error category of a completion, one of :data:`CATEGORIES`.

    Exact for planted errors: the numbers of a problem all differ, so the first step that leaves
    the true chain shows which habit made it.
    """
    if not isinstance(problem, TinyProblem):
        problem = tiny_problem(problem.id)
    if grade(completion, problem.answer):
        return "correct"
    if extract_answer(completion) is None:
        return "broken_format"
    written, truth = written_steps(completion), problem.chain()
    if not written:
        return "other"
    if written == truth:
        return "miscopied_answer"
    for at, (step, true) in enumerate(zip(written, truth, strict=False)):
        if step == true:
            continue
        (value, op, operand, result), (value0, op0, operand0, _) = step, true
        if value != value0:
            return "misread_number"
        if (op, operand) == (op0, operand0):
            carry = result == without_carry(value, op, operand)
            return "dropped_carry" if carry else "arithmetic_slip"
        if operand == operand0:
            return "wrong_operation"
        if any((op, operand) == later[1:3] for later in truth[at + 1 :]):
            return "skipped_step"
        return "misread_number" if op == op0 else "other"
    return "skipped_step" if len(written) < len(truth) else "other"
