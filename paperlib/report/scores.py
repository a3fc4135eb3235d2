"""Stored evaluations as numbers: which checkpoint counts, which problems a column is scored on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from paperlib.evaluation.passk import mean_pass_at_k
from paperlib.evaluation.settings import EvalSettings
from paperlib.experiments.benchmarks import BENCHMARKS
from paperlib.experiments.rows import Runs
from paperlib.experiments.sizes import short_name
from paperlib.experiments.store import Run
from paperlib.files import read_json
from paperlib.report.verdict import Difference, difference
from paperlib.tasks.data import problem_count

AVERAGE = "Average"
LEVELS = (1, 2, 3, 4)  # of the tiny world
CHECKPOINTS = ("last", "best", "max")
CHECKPOINT_NOTE = (
    "last: final checkpoint; best: the one checkpoint of a run with the highest pass@1 on the "
    "validation split; max: highest test value over a run's checkpoints, optimistic by "
    "construction."
)
LEVEL_NOTE = (
    "Levels 1 to 4 are those of the tiny world (number of operations of a word problem): not the "
    "papers' benchmarks, and not comparable with them in value."
)


def levels_of(task: str) -> tuple[int | str, ...]:
    """What a task's problems are scored by: the tiny world's levels, or each benchmark."""
    return LEVELS if task.startswith("tiny") else tuple(task.split("+"))


def columns_of(task: str) -> tuple[int | str, ...]:
    """The levels and their average, which is all there is of a benchmark alone."""
    levels = levels_of(task)
    return (*levels, AVERAGE) if len(levels) > 1 else (AVERAGE,)


def level_name(level: int | str, task: str = "") -> str:
    """Heading of a level's columns; that of the average is the benchmark's if ``task`` is one."""
    name = task if level == AVERAGE and task in BENCHMARKS else level
    if name in BENCHMARKS:
        return BENCHMARKS[str(name)][0]
    return AVERAGE if level == AVERAGE else f"Level {level}"


def level_note(task: str) -> str:
    """What the columns of a table are, for its notes."""
    if task.startswith("tiny"):
        return LEVEL_NOTE
    named = [BENCHMARKS[str(one)] for one in levels_of(task)]
    sizes = ", ".join(f"{name} ({problem_count(data)})" for name, data in named)
    average = "; the average weighs them equally" if len(named) > 1 else ""
    return f"Benchmarks, with the number of problems: {sizes}{average}."


def stored_evaluation(run: Run, step: int, settings: EvalSettings) -> dict[str, Any] | None:
    """A stored evaluation, None if it was not computed. Tables never compute one."""
    path = run.evaluation_path(step, settings)
    return read_json(path) if path.exists() else None


def last_result(run: Run, settings: EvalSettings) -> dict[str, Any] | None:
    """The evaluation of the last checkpoint, None if the run or the evaluation is missing."""
    if run.status() != "complete":
        return None
    return stored_evaluation(run, run.checkpoints()[-1][0], settings)


def score(result: dict[str, Any], k: int, level: int | str = AVERAGE) -> float:
    """pass@k in percent over the problems of a level; the average weighs the levels equally."""
    every = levels_of(result["settings"]["task"])
    means = [
        mean_pass_at_k(
            [
                (p["n"], p["correct"])
                for p in result["problems"]
                if p["level"] == one or len(every) == 1  # a benchmark alone keeps its own levels
            ],
            k,
        )
        for one in (every if level == AVERAGE else (level,))
    ]
    return 100 * sum(means) / len(means)


def best_step(run: Run, validation: EvalSettings) -> int | None:
    """The checkpoint with the highest validation pass@1, the earliest of several; None if some
    checkpoint has no validation result yet."""
    scores = {}
    for step, _ in run.checkpoints():
        result = stored_evaluation(run, step, validation)
        if result is None:
            return None
        scores[step] = score(result, 1)
    return max(scores, key=lambda step: (scores[step], -step)) if scores else None


def checkpoint_score(
    run: Run, which: str, test: EvalSettings, validation: EvalSettings, k: int, level: int | str
) -> float | None:
    """One run's number for a cell, or None if it is missing.

    Args:
        which: ``last``, ``best`` or ``max``, see :data:`CHECKPOINT_NOTE`.
    """
    if run.status() != "complete":
        return None
    steps: list[int | None] = [step for step, _ in run.checkpoints()]
    if which == "last":
        steps = steps[-1:]
    elif which == "best":
        steps = [best_step(run, validation)]
    results = [None if s is None else stored_evaluation(run, s, test) for s in steps]
    if not results or any(result is None for result in results):
        return None
    return max(score(result, k, level) for result in results if result is not None)


def compare(
    runs: dict[str, Runs], tests: dict[str, EvalSettings], what: str, method: str, rival: str,
    k: int = 1, *, level: int | str = AVERAGE, claimed: Sequence[str] = (),
) -> tuple[list[Difference | None], str]:
    """``method - rival`` at the last checkpoint, paired by seed: one difference a model, and all of
    them in words.

    Args:
        runs, tests: by model.
        claimed: words in the names of the models that a claim is about; if the profile has none of
            them, all of its models count.
    """
    about = [m for m in runs if any(word in m for word in claimed)] or list(runs)
    found, texts = [], []
    for model in about:
        values = [
            [checkpoint_score(run, "last", tests[model], tests[model], k, level) for run in of]
            for of in (runs[model][method], runs[model][rival])
        ]
        found.append(difference(what, *values))
        name = f"{short_name(model)}: " if len(runs) > 1 else ""
        texts.append(f"{name}{found[-1] or 'missing'}")
    return found, "; ".join(texts)
