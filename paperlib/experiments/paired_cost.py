"""What MEDS costs over DAPO (arXiv 2604.11297, Sec. 4.2): paired steps of the training loop.

CPU time of this process (``time.process_time``), not the clock on the wall: another program on
the machine then slows both sides of a pair alike, or neither.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from paperlib.errors import UserError
from paperlib.experiments.grid import fixed_threads
from paperlib.experiments.replay import stored_rollouts
from paperlib.experiments.store import Run
from paperlib.experiments.variants import cluster_term
from paperlib.methods.rollouts import call_term, call_terms
from paperlib.rl.collect import collect, make_stream
from paperlib.rl.config import RunConfig
from paperlib.rl.policy import load_policy, resolve_device
from paperlib.rl.train import advantages_of, make_optimizer, reward_terms
from paperlib.rl.update import update
from paperlib.tasks.data import load_problems


def paired_steps(run: Run, pairs: int) -> pd.DataFrame:
    """Steps as they would follow on a MEDS run's end, each by DAPO and by MEDS.

    Both start from the run's last weights, draw the same prompts with the same seed, and so sample
    the same completions; the learning rate is 0, so that the weights stay what they are (the work
    is the same). MEDS brings the memory that the run had filled. Who comes first alternates; one
    pair beforehand warms up and is left out. A row per ``pair`` and ``method``, see
    :func:`timed_step`.
    """
    if run.status() != "complete":
        raise UserError(f"{run.config.name} is {run.status()}; paired steps start from its end")
    meds, penalty = replace(run.config, learning_rate=0.0), cluster_term(run.config)
    plain = tuple(term for term in meds.terms if term is not penalty)
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
                found = timed_step(sides[name], last + pair + 1, stream, model, tokenizer,
                                   optimizer, terms[name])
                if pair:
                    rows.append({"pair": pair, "method": name, **found})
    return pd.DataFrame(rows)


def timed_step(
    config: RunConfig, step: int, stream: Any, model: Any, tokenizer: Any, optimizer: Any,
    terms: list[Any],
) -> dict[str, Any]:
    """One step of the training loop (paperlib/rl/train.py); nothing is written.

    CPU seconds ``sample``, ``terms``, ``update`` and ``total``, ``forwards`` (passes through the
    decoder), ``batches`` (generation batches drawn), ``completions`` (a hash of the texts).
    """
    calls: list[int] = []
    hook = model.base_model.register_forward_hook(lambda *_: calls.append(1))
    clock = [time.process_time()]
    batch, stats = collect(config, step, stream, model, tokenizer)
    clock.append(time.process_time())
    if batch:
        _, rewards = call_terms(terms, batch.rollouts)
        advantages, _ = advantages_of(config, rewards, batch.rollouts.accuracy)
    clock.append(time.process_time())
    if batch:
        update(config, model, None, optimizer, batch, advantages)
    clock.append(time.process_time())
    hook.remove()
    seconds = dict(zip(("sample", "terms", "update"), np.diff(clock).tolist(), strict=True))
    texts = batch.rollouts.completions if batch else []
    return {**seconds, "total": sum(seconds.values()), "forwards": len(calls),
            "batches": stats["generation_batches"], "completions": hash(tuple(texts))}


def overhead(steps: pd.DataFrame, parts: tuple[str, ...]) -> tuple[float, float, float]:
    """What MEDS adds in ``parts`` of a step, in percent of DAPO's whole step: the median over the
    pairs of :func:`paired_steps` and its 95 % bootstrap interval (NaN below 5 pairs)."""
    wide = steps.set_index(["pair", "method"])
    added = wide[list(parts)].sum(axis=1).unstack()
    percent = 100 * ((added["MEDS"] - added["DAPO"]) / wide["total"].unstack()["DAPO"]).to_numpy()
    if len(percent) < 5:  # resampling so few says nothing
        return float(np.median(percent)), float("nan"), float("nan")
    found = stats.bootstrap((percent,), np.median, method="percentile", rng=0)
    return float(np.median(percent)), *map(float, found.confidence_interval)
