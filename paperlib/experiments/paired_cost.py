"""What MEDS costs over DAPO (arXiv 2604.11297, Sec. 4.2): paired steps, and the term by itself.

CPU time of this process (``time.process_time``), not the clock on the wall: another program on
the machine then slows both sides of a pair alike, or neither.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from paperlib.errors import UserError
from paperlib.experiments.grid import fixed_threads
from paperlib.experiments.replay import stored_rollouts
from paperlib.experiments.store import Run
from paperlib.methods.meds import ClusterPenalty, Meds
from paperlib.methods.rollouts import Rollouts, call_term, call_terms
from paperlib.rl.collect import collect, make_stream
from paperlib.rl.config import RunConfig
from paperlib.rl.policy import load_policy, resolve_device
from paperlib.rl.train import advantages_of, make_optimizer, reward_terms
from paperlib.rl.update import update
from paperlib.tasks.data import load_problems

PARTS = ("sample", "terms", "update")  # as in the run's metrics: seconds/<part>


def paired_steps(run: Run, pairs: int) -> pd.DataFrame:
    """Steps as they would follow on a MEDS run's end, each by DAPO and by MEDS.

    Both start from the run's last weights, draw the same prompts with the same seed, and so sample
    the same completions; the learning rate is 0, so that the weights stay what they are (the work
    is the same). MEDS brings the memory that the run had filled. Who comes first alternates; one
    pair beforehand warms up and is left out.

    Returns:
        A row per pair and method: ``pair``, ``method`` ("DAPO", "MEDS"), CPU seconds ``sample``,
        ``terms``, ``update`` and ``total``, ``forwards`` (passes through the decoder), ``batches``
        (generation batches drawn) and ``completions`` (a hash of the sampled texts).

    Raises:
        UserError: the run is not complete, or has no cluster penalty.
    """
    if run.status() != "complete":
        raise UserError(f"{run.config.name} is {run.status()}; paired steps start from its end")
    if not any(isinstance(term, ClusterPenalty) for term in run.config.terms):
        raise UserError(f"{run.config.name} has no cluster penalty; give a MEDS run")
    meds = replace(run.config, learning_rate=0.0)
    plain = tuple(term for term in meds.terms if not isinstance(term, ClusterPenalty))
    sides = {"DAPO": replace(meds, terms=plain), "MEDS": meds}
    last, folder = run.checkpoints()[-1]
    rows = []
    with fixed_threads(1):
        model, tokenizer = load_policy(folder, resolve_device("auto"))
        problems = load_problems(meds.dataset)
        optimizer = make_optimizer(meds, model)  # of no consequence at learning rate 0
        terms = {name: reward_terms(config) for name, config in sides.items()}
        for rollouts in stored_rollouts(run, run.rollouts()):
            for term in terms["MEDS"]:
                call_term(term, rollouts)
        for pair in range(pairs + 1):
            for name in ("DAPO", "MEDS") if pair % 2 else ("MEDS", "DAPO"):
                stream = make_stream(meds, problems, model, tokenizer)
                stream.drawn = pair * meds.prompts_per_step
                found = _step(sides[name], last + pair + 1, stream, model, tokenizer, optimizer,
                              terms[name])
                if pair:
                    rows.append({"pair": pair, "method": name, **found})
    return pd.DataFrame(rows)


def _step(
    config: RunConfig, step: int, stream: Any, model: Any, tokenizer: Any, optimizer: Any,
    terms: list[Any],
) -> dict[str, Any]:
    """One step of the training loop (paperlib/rl/train.py), timed; nothing is written."""
    seconds = dict.fromkeys(PARTS, 0.0)
    forwards = 0

    def count(*_: Any) -> None:
        nonlocal forwards
        forwards += 1

    hook = model.base_model.register_forward_hook(count)
    with _cpu(seconds, "sample"):
        batch, stats = collect(config, step, stream, model, tokenizer)
    if batch:
        with _cpu(seconds, "terms"):
            _, rewards = call_terms(terms, batch.rollouts)
            advantages, _ = advantages_of(config, rewards, batch.rollouts.accuracy)
        with _cpu(seconds, "update"):
            update(config, model, None, optimizer, batch, advantages)
    hook.remove()
    texts = batch.rollouts.completions if batch else []
    return {**seconds, "total": sum(seconds.values()), "forwards": forwards,
            "batches": stats["generation_batches"], "completions": hash(tuple(texts))}


@contextmanager
def _cpu(seconds: dict[str, float], name: str) -> Iterator[None]:
    began = time.process_time()
    yield
    seconds[name] += time.process_time() - began


def overhead(
    steps: pd.DataFrame, parts: Sequence[str] = PARTS
) -> tuple[float, float, float]:
    """What MEDS adds in ``parts`` of a step, in percent of DAPO's whole step.

    The update does the same work on both sides, so that its difference is noise: ``("sample",
    "terms")`` are where MEDS costs anything.

    Args:
        steps: from :func:`paired_steps`.

    Returns:
        ``(median, low, high)``: over pairs, with a 95 % bootstrap interval; NaN below 5 pairs.
    """
    wide = steps.set_index(["pair", "method"])
    added = wide[list(parts)].sum(axis=1).unstack()
    percent = 100 * ((added["MEDS"] - added["DAPO"]) / wide["total"].unstack()["DAPO"]).to_numpy()
    if len(percent) < 5:  # resampling so few says nothing
        return float(np.median(percent)), float("nan"), float("nan")
    found = stats.bootstrap((percent,), np.median, method="percentile", rng=0)
    low, high = found.confidence_interval
    return float(np.median(percent)), float(low), float(high)


def stored_seconds(runs: dict[str, Sequence[Run]]) -> pd.DataFrame:
    """Wall-clock seconds per step of stored runs: a row per method and complete run.

    Columns ``method``, ``seed``, ``batches`` (generation batches per step: dynamic sampling draws
    more of them the more prompts are mastered), ``sample`` (per batch), ``terms``, ``update`` and
    ``total``, a step with one generation batch.
    """
    rows = []
    for method, of_method in runs.items():
        for run in of_method:
            if run.status() == "complete":
                metrics = run.metrics()
                parts = {part: metrics[f"seconds/{part}"].mean() for part in PARTS}
                batches = metrics["generation_batches"].mean()
                parts["sample"] /= batches
                rows.append({"method": method, "seed": run.config.seed, "batches": batches,
                             **parts, "total": sum(parts.values())})
    return pd.DataFrame(rows, columns=["method", "seed", "batches", *PARTS, "total"])


def term_seconds(
    stored: Sequence[int], settings: Meds, *, layers: int = 28, new: int = 8, repeats: int = 5,
    seed: int = 0,
) -> pd.DataFrame:
    """CPU seconds of the cluster penalty for one prompt against what its memory holds.

    The vectors are synthetic: a quarter of them alone, the rest around as many kinds of mistake as
    there are eights among them.

    Args:
        stored: numbers of vectors in the prompt's memory.
        layers: of the model; the feature is the later half.
        new: wrong rollouts of the prompt in the step.

    Returns:
        Columns ``stored`` and ``seconds``, the median of ``repeats`` calls.
    """
    rng, rows = np.random.default_rng(seed), []
    _call(_mistakes(rng, 16, layers), new, settings)  # imports, first call
    for count in stored:
        found = [_call(_mistakes(rng, count + new, layers), new, settings) for _ in range(repeats)]
        rows.append({"stored": count, "seconds": float(np.median(found))})
    return pd.DataFrame(rows)


def _mistakes(rng: np.random.Generator, count: int, layers: int) -> np.ndarray:
    kinds = rng.normal(size=(max(1, count // 8), layers))
    points = kinds[rng.integers(len(kinds), size=count)] + 0.02 * rng.normal(size=(count, layers))
    alone = rng.random(count) < 0.25
    points[alone] = rng.normal(size=(int(alone.sum()), layers))
    return points


def _call(logits: np.ndarray, new: int, settings: Meds) -> float:
    """Seconds of the call with the last ``new`` rows, after one with the others."""
    term = ClusterPenalty(settings)
    term(_wrong(logits[:-new]))
    batch, began = _wrong(logits[-new:]), time.process_time()
    term(batch)
    return time.process_time() - began


def _wrong(logits: np.ndarray) -> Rollouts:
    n = len(logits)
    return Rollouts(
        step=1, num_generations=n, problem_ids=["p"] * n, questions=["q"] * n, golds=["1"] * n,
        completions=["2"] * n, lengths=np.full(n, 1), truncated=np.zeros(n, dtype=bool),
        accuracy=np.zeros(n), max_completion_length=1, layer_logits=logits,
    )
