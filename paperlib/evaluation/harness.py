"""What a checkpoint is worth: lm-eval runs our tasks on our sampler and grades every response.

lm-eval asks, filters, grades and aggregates; :class:`~paperlib.evaluation.adapter.SamplerLM`
answers; :func:`summarise` turns the counts into pass@k. The tasks are the YAML files in ``tasks/``.

We call ``lm_eval.evaluate``, which ``simple_evaluate`` wraps: the wrapper would also seed the
caller's global generators and describe the machine by shelling out (1.7 s per call).
"""

from __future__ import annotations

import io
import logging
import random
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from paperlib.errors import UserError, check_choice
from paperlib.evaluation.passk import bootstrap_interval, mean_pass_at_k, pass_at_k
from paperlib.evaluation.settings import EvalSettings
from paperlib.tasks.data import load_problems
from paperlib.tasks.grading import grade

TASKS = Path(__file__).parent / "tasks"


def task_names() -> list[str]:
    """The tasks that can be evaluated, found without importing lm-eval."""
    return sorted(path.stem for path in TASKS.glob("[!_]*.yaml"))


def evaluate(
    checkpoint: Path | str, settings: EvalSettings, *, device: str = "cpu", progress: bool = True
) -> dict[str, Any]:
    """Sample ``settings.samples`` responses to each problem of a task, and grade them all.

    Args:
        checkpoint: a folder, "tiny" or a hub id.
        device: "auto", "cpu", "cuda", ...
        progress: show a bar on stderr; nothing else is printed.

    Returns:
        JSON values: ``settings``; ``versions``; ``metrics`` by lm-eval (first, avg@n, pass@n);
        ``generation_kwargs`` and ``task_version`` as lm-eval ran them; ``problems``, each with
        id, level, n, correct, truncated (a count), mean_length (tokens, end token included),
        responses (n texts) and grades (n of 0 or 1); ``seconds``, ``seconds_sampling``.

    Raises:
        UserError: unknown task or missing checkpoint, before anything is loaded.
    """
    check_choice("evaluation task", settings.task, task_names())
    _check_checkpoint(checkpoint)
    started = time.perf_counter()
    from lm_eval import evaluate as lm_evaluate

    from paperlib.evaluation.adapter import SamplerLM
    from paperlib.rl.policy import load_policy, resolve_device

    stderr = sys.stderr
    with _unnoticed():
        with redirect_stderr(stderr):
            model, tokenizer = load_policy(checkpoint, resolve_device(device))
        lm = SamplerLM(
            model, tokenizer, prompt=settings.prompt, batch_prompts=settings.batch_prompts,
            seed=settings.seed, stderr=stderr, progress=progress,
        )
        task = _load_task(settings)
        # 0: no standard errors by lm-eval; summarise makes the intervals, one way for all metrics
        output = lm_evaluate(lm, {"tasks": {settings.task: task}}, bootstrap_iters=0)
    metrics = output["results"][settings.task]
    return {
        "settings": settings.to_dict(),
        "versions": {name: version(name) for name in ("lm_eval", "transformers", "torch")},
        "task_version": output["versions"][settings.task],
        "generation_kwargs": output["configs"][settings.task]["generation_kwargs"],
        "metrics": {
            name.replace("@n", f"@{settings.samples}"): metrics[f"{name},all"]
            for name in ("first", "avg@n", "pass@n")
        },
        "problems": _problems(output["samples"][settings.task], lm, settings.samples),
        "seconds": time.perf_counter() - started,
        "seconds_sampling": lm.seconds,
    }


def _check_checkpoint(checkpoint: Path | str) -> None:
    folder = Path(checkpoint)
    # "tiny" and hub ids ("owner/name") are no folders; what can only be a path must be one.
    is_path = isinstance(checkpoint, Path) or folder.is_absolute() or len(folder.parts) > 2
    if (is_path or str(checkpoint).startswith(".")) and not (folder / "config.json").is_file():
        state = "has no config.json" if folder.is_dir() else "does not exist"
        raise UserError(
            f"checkpoint folder {str(checkpoint)!r} {state}; valid: a folder with a saved model, "
            "'tiny' or a hub id"
        )


@cache
def _task_manager() -> Any:
    from lm_eval.tasks import TaskManager

    # Indexing the thousands of tasks that come with lm-eval would take seconds.
    return TaskManager(include_path=str(TASKS), include_defaults=False)


def _load_task(settings: EvalSettings) -> Any:
    task = _task_manager().load(settings.task)["tasks"][settings.task]
    task.set_config("repeats", settings.samples)
    generation = {
        "do_sample": settings.temperature > 0,
        "temperature": settings.temperature,
        "top_p": settings.top_p,
        "max_gen_toks": settings.max_completion_length,
    }
    task.set_config("generation_kwargs", generation, update=True)
    return task


@contextmanager
def _unnoticed() -> Iterator[None]:
    """Without lm-eval's log, its bar over the contexts (what we load and sample keeps stderr), and
    any trace in the caller's global generators (datasets draws fingerprints from ``random``)."""
    logger = logging.getLogger("lm_eval")
    level, python_state, numpy_state = logger.level, random.getstate(), np.random.get_state()
    logger.setLevel(logging.ERROR)
    try:
        with torch.random.fork_rng(devices=[]), redirect_stderr(io.StringIO()):
            yield
    finally:
        logger.setLevel(level)
        random.setstate(python_state)
        np.random.set_state(numpy_state)


def _problems(samples: list[dict[str, Any]], lm: Any, n: int) -> list[dict[str, Any]]:
    problems = []
    for i, sample in enumerate(samples):
        rows = slice(i * n, (i + 1) * n)
        problems.append(
            {
                "id": sample["doc"]["id"],
                "level": sample["doc"]["level"],
                "n": n,
                "correct": sum(sample["grades"]),
                "truncated": sum(lm.truncated[rows]),
                "mean_length": sum(lm.lengths[rows]) / n,
                "responses": sample["resps"][0],
                "grades": sample["grades"],
            }
        )
    return problems


# What the YAML files name. lm-eval passes each document (a dict) and its filtered responses.


def load_docs(*, dataset: str, **metadata: Any) -> dict[str, Any]:
    """The problems of a data set as lm-eval's documents; nothing is downloaded.

    ``metadata`` (the task's version and the like) is passed by lm-eval and not needed.
    """
    from datasets import Dataset

    return {
        "test": Dataset.from_list(
            [
                {"id": p.id, "question": p.question, "answer": p.answer, "level": p.level}
                for p in load_problems(dataset)
            ]
        )
    }


def process_results(doc: dict[str, Any], results: list[list[str]]) -> dict[str, Any]:
    """Grade all n responses to a problem; each way to score them has its own name."""
    grades = [int(grade(response, doc["answer"])) for response in results[0]]
    return {
        "first": grades[0],
        "avg@n": sum(grades) / len(grades),
        "pass@n": max(grades),
        "grades": grades,
    }


def count_grades(items: list[list[int]]) -> int:
    """Number of graded responses."""
    return sum(map(len, items))


def summarise(result: dict[str, Any], ks: Sequence[int]) -> dict[str, Any]:
    """pass@k of an evaluation, over all problems and per level, with 95 % bootstrap intervals.

    Returns:
        ``samples`` (n), ``truncated`` (share of responses), ``mean_length`` (tokens), ``first``
        (accuracy of the first responses alone) and, for each k, ``pass@k``: a dict from "all" and
        from each level (as text) to ``{value, low, high, problems}``.

    Raises:
        UserError: a k above n.
    """
    problems = result["problems"]
    groups: dict[str, list[tuple[int, int]]] = {"all": []}
    for problem in problems:
        counts = (problem["n"], problem["correct"])
        groups["all"].append(counts)
        if problem["level"] is not None:
            groups.setdefault(str(problem["level"]), []).append(counts)
    responses = sum(p["n"] for p in problems)
    return {
        "samples": result["settings"]["samples"],
        "truncated": sum(p["truncated"] for p in problems) / responses,
        "mean_length": sum(p["mean_length"] * p["n"] for p in problems) / responses,
        "first": sum(p["grades"][0] for p in problems) / len(problems),
        **{f"pass@{k}": {name: _score(counts, k) for name, counts in groups.items()} for k in ks},
    }


def _score(counts: list[tuple[int, int]], k: int) -> dict[str, float | int]:
    low, high = bootstrap_interval([pass_at_k(n, c, k) for n, c in counts])
    return {
        "value": mean_pass_at_k(counts, k), "low": low, "high": high, "problems": len(counts),
    }
