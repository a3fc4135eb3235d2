"""What a checkpoint is worth: lm-eval runs our tasks on our sampler and grades every response.

lm-eval asks, filters, grades and aggregates; :class:`~paperlib.evaluation.adapter.SamplerLM`
answers; :func:`summarise` turns the counts into pass@k. The tasks are the YAML files in ``tasks/``
(:mod:`paperlib.evaluation.lm_tasks`), the same that ``lm_eval run`` takes without our sampler.

``simple_evaluate``, the wrapper around what we call, would seed the caller's global generators too.
"""

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
from paperlib.evaluation.lm_tasks import NO_ANSWER, RIGHT, TASKS, task_names
from paperlib.evaluation.passk import bootstrap_interval, mean_pass_at_k, pass_at_k
from paperlib.evaluation.settings import EvalSettings


def evaluate(
    checkpoint: Path | str, settings: EvalSettings, *, device: str = "cpu", progress: bool = True
) -> dict[str, Any]:
    """Sample ``settings.samples`` responses to each problem of a task, and grade them all.

    ``checkpoint`` is a folder, "tiny" or a hub id. What comes back are JSON values: ``settings``;
    ``versions``; ``metrics`` by lm-eval, for each task (of n = 1 response accuracy, else first,
    avg@n, pass@k; no_answer); ``generation_kwargs`` as lm-eval ran them; ``task_versions``;
    ``problems``, each with id, level (the task's name where several are joined), n, correct,
    no_answer and truncated (counts), mean_length (tokens, end token included), responses (n texts)
    and grades (n of 0 or 1); ``seconds``, ``seconds_sampling``.
    """
    for task in settings.tasks:
        check_choice("evaluation task", task, task_names())
    name = str(checkpoint)
    is_path = "::" not in name and (name.startswith((".", "/")) or name.count("/") > 1)
    if is_path and not (Path(name) / "config.json").is_file():
        raise UserError(
            f"checkpoint folder {name!r} does not exist or has no config.json; valid: a folder "
            "with a saved model, 'tiny' or a hub id"
        )
    started = time.perf_counter()
    from lm_eval import evaluate as lm_evaluate

    from paperlib.evaluation.adapter import SamplerLM
    from paperlib.rl.policy import load_policy, resolve_device

    stderr = sys.stderr
    with _unnoticed():
        with redirect_stderr(stderr):
            tasks = _load_tasks(settings)  # first: the problems may be what is missing
            model, tokenizer = load_policy(checkpoint, resolve_device(device))
        lm = SamplerLM(model, tokenizer, settings, stderr, progress)
        # 0: no standard errors by lm-eval; summarise makes the intervals, one way for all metrics
        output = lm_evaluate(lm, {"tasks": tasks}, bootstrap_iters=0)
    return {
        "settings": settings.to_dict(),
        "versions": {name: version(name) for name in ("lm_eval", "transformers", "torch")},
        "task_versions": output["versions"],
        "generation_kwargs": output["configs"][settings.tasks[0]]["generation_kwargs"],
        "metrics": {name: _metrics(output["results"][name]) for name in settings.tasks},
        "problems": _problems(output["samples"], lm, settings),
        "seconds": time.perf_counter() - started,
        "seconds_sampling": lm.seconds,
    }


@cache
def _task_manager(grading: str) -> Any:
    from lm_eval.tasks import TaskManager

    return TaskManager(
        include_path=str(TASKS),
        include_defaults=False,  # indexing the thousands of tasks of lm-eval would take seconds
        metadata={"grading": grading, "prompt": ""},  # the adapter adds the system prompt
    )


def _load_tasks(settings: EvalSettings) -> dict[str, Any]:
    tasks = _task_manager(settings.grading).load(settings.tasks)["tasks"]
    for task in tasks.values():
        task.set_config("repeats", settings.samples)
        task.set_config("generation_kwargs", {
            "until": [],  # only the end token stops: a stop string could fire in the reasoning
            "do_sample": settings.temperature > 0, "temperature": settings.temperature,
            "top_p": settings.top_p, "max_gen_toks": settings.max_completion_length,
        })
    return {name: tasks[name] for name in settings.tasks}


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


def _metrics(results: dict[str, Any]) -> dict[str, float]:
    """lm-eval's means by metric; its own keys are ``name,filter`` and ``name_stderr,filter``."""
    names = (key.split(",") for key in results if "," in key)
    return {n: results[f"{n},{f}"] for n, f in names if not n.endswith("_stderr")}


def _problems(
    samples: dict[str, list[dict[str, Any]]], lm: Any, settings: EvalSettings
) -> list[dict[str, Any]]:
    n, joined, problems = settings.samples, len(settings.tasks) > 1, []
    asked = [(name, sample) for name in settings.tasks for sample in samples[name]]
    for i, (task, sample) in enumerate(asked):
        rows = slice(i * n, (i + 1) * n)  # the sampler keeps the order of the requests
        (verdicts,) = sample["filtered_resps"]
        problems.append({
            "id": sample["doc"]["id"], "level": task if joined else sample["doc"]["level"], "n": n,
            "correct": verdicts.count(RIGHT), "no_answer": verdicts.count(NO_ANSWER),
            "truncated": sum(lm.truncated[rows]), "mean_length": sum(lm.lengths[rows]) / n,
            "responses": sample["resps"][0],
            "grades": [int(verdict == RIGHT) for verdict in verdicts],
        })  # fmt: skip
    return problems


def summarise(result: dict[str, Any], ks: Sequence[int]) -> dict[str, Any]:
    """pass@k of an evaluation, over all problems and per level, with 95 % bootstrap intervals.

    ``samples`` (n), ``truncated`` (share of responses), ``mean_length`` (tokens), ``first``
    (accuracy of the first responses alone) and, for each k, ``pass@k``: a dict from "all" and from
    each level (as text) to ``{value, low, high, problems}``.
    """
    problems = result["problems"]
    groups: dict[str, list[tuple[int, int]]] = {"all": [(p["n"], p["correct"]) for p in problems]}
    for problem in problems:
        if problem["level"] is not None:
            counts = groups.setdefault(str(problem["level"]), [])
            counts.append((problem["n"], problem["correct"]))
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
    return {"value": mean_pass_at_k(counts, k), "low": low, "high": high, "problems": len(counts)}
