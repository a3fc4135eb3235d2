"""Word problems over small integers; the level is the number of operations, 1 to 4."""

import operator
import random
from dataclasses import dataclass
from functools import cache

from paperlib.errors import UserError
from paperlib.tasks.rows import Problem

LEVELS = (1, 2, 3, 4)
# Problems per level of each split. Splits share no question, and none is trained on by the
# supervised recipe of the base model.
SPLITS = {"tiny-test": 100, "tiny-validation": 32, "tiny-train": 32, "tiny-smoke": 2}
SMALL = "tiny-small"

NAMES = ("Ann", "Ben", "Cleo", "Dan", "Eva", "Finn", "Gus", "Hana")
THINGS = ("apples", "books", "coins", "stamps", "shells", "cards")
EVENTS = {
    "+": ("{name} finds {n} more.", "{name} buys {n} more.", "{name} gets {n} more."),
    "-": ("{name} loses {n}.", "{name} sells {n}.", "{name} gives away {n}."),
    "*": ("Now {name} has {n} times as many.", "The number grows {n} times."),
}
APPLY = {"+": operator.add, "-": operator.sub, "*": operator.mul}


@dataclass(frozen=True)
class TinyProblem(Problem):
    """A problem that knows its worked solution: ``start``, then ``steps`` one after the other.
    Its ``subject``, what is counted, has a favourite error habit (see solutions)."""

    start: int = 0
    steps: tuple[tuple[str, int], ...] = ()  # (operation, operand)

    def chain(self) -> list[tuple[int, str, int, int]]:
        """The true steps as (value, operation, operand, result)."""
        out, value = [], self.start
        for op, operand in self.steps:
            result = APPLY[op](value, operand)
            out.append((value, op, operand, result))
            value = result
        return out


def draw_problem(rng: random.Random, level: int, problem_id: str = "drawn") -> TinyProblem:
    """A random problem; every value stays in 1..60, so that a small model knows its arithmetic and
    errs by habit, and all numbers differ, so that diagnose can tell errors by what they did."""
    while True:
        start = value = rng.randint(3, 40)
        numbers, steps = {start}, []
        while len(steps) < level:
            op = rng.choices("+-*", weights=(4, 4, 2))[0]
            operand = rng.randint(2, 4) if op == "*" else rng.randint(2, 19)
            value = APPLY[op](value, operand)
            if not 1 <= value <= 60 or operand in numbers:
                break
            numbers.add(operand)
            steps.append((op, operand))
        if len(steps) == level:
            break
    name, thing = rng.choice(NAMES), rng.choice(THINGS)
    story = [f"{name} has {start} {thing}."]
    story += [rng.choice(EVENTS[op]).format(name=name, n=operand) for op, operand in steps]
    story.append(f"How many {thing} does {name} have?")
    return TinyProblem(problem_id, " ".join(story), str(value), level, thing, start, tuple(steps))


@cache
def _all_splits() -> dict[str, list[TinyProblem]]:
    seen, splits = set(), {}
    for split, per_level in SPLITS.items():
        rng, problems = random.Random(split), []
        for level in LEVELS:
            while sum(p.level == level for p in problems) < per_level:
                problem = draw_problem(rng, level, f"{split}-{len(problems):03d}")
                if problem.question not in seen:
                    seen.add(problem.question)
                    problems.append(problem)
        splits[split] = problems
    return splits | {SMALL: splits["tiny-train"][::2]}


def tiny_split(split: str) -> list[TinyProblem]:
    """The problems of one split, always the same ones, ordered by level; ``tiny-small``, the
    small-data setting, is every second problem of ``tiny-train``."""
    return list(_all_splits()[split])


def tiny_problem(problem_id: str) -> TinyProblem:
    """The problem with this id, from any split; a UserError if it is none of the tiny world."""
    split = problem_id.rpartition("-")[0]
    for problem in _all_splits().get(split, ()):
        if problem.id == problem_id:
            return problem
    raise UserError(
        f"problem {problem_id!r} is none of the tiny world, and only there is the error category "
        "of an answer known exactly; elsewhere an LLM can annotate (paperlib.evaluation.annotate)"
    )


def held_out_questions() -> set[str]:
    """Questions of all splits: the supervised recipe skips them."""
    return {p.question for split in _all_splits().values() for p in split}
