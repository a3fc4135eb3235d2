"""Stored evaluations as numbers: which checkpoint counts, which problems a column is scored on."""

from collections.abc import Iterable, Sequence
from typing import Any

from paperlib.evaluation.passk import AVERAGE, levels_of, of_level, score
from paperlib.evaluation.settings import EvalSettings
from paperlib.experiments.benchmarks import BENCHMARKS, task_data
from paperlib.experiments.rows import Runs
from paperlib.experiments.sizes import short_name
from paperlib.experiments.store import Run
from paperlib.files import read_json
from paperlib.report.difference import Difference, difference, pooled_spread
from paperlib.report.tables import NOTES
from paperlib.tasks.data import problem_count

CHECKPOINTS = ("last", "best")  # "max" needs test values of every checkpoint


def columns_of(task: str) -> tuple[int | str, ...]:
    """The levels and their average, which is all there is of a benchmark alone."""
    levels = levels_of(task)
    return (*levels, AVERAGE) if len(levels) > 1 else (AVERAGE,)


def level_name(level: int | str, task: str = "") -> str:
    """Heading of a level's columns; that of the average is the benchmark's if ``task`` is one."""
    name = task if level == AVERAGE and task in BENCHMARKS else level
    if name in BENCHMARKS:
        return BENCHMARKS[str(name)]
    return AVERAGE if level == AVERAGE else f"Level {level}"


def level_note(task: str) -> str:
    """What the columns of a table are, for its notes."""
    if task.startswith("tiny"):
        return NOTES["levels"]
    named = [(BENCHMARKS[str(one)], *task_data(str(one))) for one in levels_of(task)]
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


def fixed_questions(result: dict[str, Any], number: int) -> list[dict[str, Any]]:
    """The first ``number`` problems of an evaluation, as many of each level, in its order."""
    levels = levels_of(result["settings"]["task"])
    each = number // len(levels)
    return [problem for level in levels for problem in of_level(result, level)[:each]]


def checkpoint_score(
    run: Run, which: str, test: EvalSettings, validation: EvalSettings, k: int, level: int | str
) -> float | None:
    """One run's number for a cell, or None if it is missing; ``which``: :data:`CHECKPOINTS`."""
    if run.status() != "complete":
        return None
    steps = [step for step, _ in run.checkpoints()]
    if which != "max":
        steps = steps[-1:] if which == "last" else [run.best_step(validation)]
    results = [None if step is None else stored_evaluation(run, step, test) for step in steps]
    return None if None in results else max(score(result, k, level) for result in results)


def last_scores(
    runs: Iterable[Run], test: EvalSettings, k: int = 1, level: int | str = AVERAGE
) -> list[float | None]:
    """pass@k in percent at the last checkpoint of each run, None if missing."""
    return [checkpoint_score(run, "last", test, test, k, level) for run in runs]


def compare(
    runs: dict[str, Runs], tests: dict[str, EvalSettings], what: str, method: str, rival: str,
    k: int = 1, *, level: int | str = AVERAGE, claimed: Sequence[str] = (),
) -> tuple[list[Difference | None], str]:
    """``method - rival`` at the last checkpoint, paired by seed, with the spread of all trained
    methods: one difference a model (``runs`` and ``tests`` are by model), and all of them in words.
    ``claimed``: words in the names of the models that a claim is about; if the profile has none of
    them, all of its models count."""
    found, texts = [], []
    for model in [m for m in runs if any(word in m for word in claimed)] or runs:
        scores = {m: last_scores(of, tests[model], k, level) for m, of in runs[model].items()}
        spread = pooled_spread([of for of in scores.values() if len(of) > 1])
        found.append(difference(what, scores[method], scores[rival], spread=spread))
        name = f"{short_name(model)}: " if len(runs) > 1 else ""
        texts.append(f"{name}{found[-1] or 'missing'}")
    return found, "; ".join(texts)
