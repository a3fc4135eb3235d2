"""What MEDS costs over DAPO (arXiv 2604.11297, Sec. 4.2): paired steps of the training loop.

CPU time of this process (``time.process_time``), not the clock on the wall: another program on
the machine then slows both sides of a pair alike, or neither.
"""

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
    """Steps as they would follow on a MEDS run's end, each by DAPO and by MEDS, which brings the
    memory that the run had filled: a row per ``pair`` and ``method``, see :func:`timed_pairs`."""
    if run.status() != "complete":
        raise UserError(f"{run.config.name} is {run.status()}; paired steps start from its end")
    meds, penalty = replace(run.config, learning_rate=0.0), cluster_term(run.config)
    dapo = replace(meds, terms=tuple(term for term in meds.terms if term is not penalty))
    last, folder = run.checkpoints()[-1]
    with fixed_threads(1):
        terms = {"DAPO": reward_terms(dapo), "MEDS": reward_terms(meds)}
        for rollouts in stored_rollouts(run, run.rollouts()):
            for term in terms["MEDS"]:
                call_term(term, rollouts)
        policy = load_policy(folder, resolve_device("auto"))
        return timed_pairs({"DAPO": dapo, "MEDS": meds}, terms, *policy, pairs, after=last)


def timed_pairs(
    sides: dict[str, RunConfig], terms: dict[str, list[Any]], model: Any, tokenizer: Any,
    pairs: int, after: int,
) -> pd.DataFrame:
    """Steps from ``after`` on, each by both ``sides``, whose learning rate is 0: weights, prompts
    and seed of a pair are the same, and so are the completions and the work.

    Who comes first alternates; one pair beforehand warms up and is left out. Nothing is written.
    CPU seconds ``sample``, ``terms``, ``update`` and ``total``, ``forwards`` (passes through the
    decoder), ``batches`` (generation batches drawn), ``completions`` (a hash of the texts).
    """
    config, rows = sides["MEDS"], []
    problems, optimizer = load_problems(config.dataset), make_optimizer(config, model)
    for pair in range(pairs + 1):
        for name in ("DAPO", "MEDS") if pair % 2 else ("MEDS", "DAPO"):
            stream = make_stream(config, problems, model, tokenizer)
            stream.drawn = pair * config.prompts_per_step
            found = _timed_step(sides[name], after + pair + 1, stream, model, tokenizer, optimizer,
                                terms[name])
            rows.append({"pair": pair, "method": name, **found})
    return pd.DataFrame(rows[2:])


def _timed_step(
    config: RunConfig, step: int, stream: Any, model: Any, tokenizer: Any, optimizer: Any,
    terms: list[Any],
) -> dict[str, Any]:
    """One step of the training loop (paperlib/rl/train.py)."""
    calls: list[int] = []
    hook = model.base_model.register_forward_hook(lambda *_: calls.append(1))
    clock, texts = [time.process_time()], ()
    batch, stats = collect(config, step, stream, model, tokenizer)
    clock.append(time.process_time())
    if batch:
        texts = tuple(batch.rollouts.completions)
        _, rewards = call_terms(terms, batch.rollouts)
        advantages, _ = advantages_of(config, rewards, batch.rollouts.accuracy)
        clock.append(time.process_time())
        update(config, model, None, optimizer, batch, advantages)
        clock.append(time.process_time())
    hook.remove()
    seconds = [*np.diff(clock).tolist(), 0.0, 0.0][:3]  # a step without a batch only samples
    return {**dict(zip(("sample", "terms", "update"), seconds, strict=True)),
            "total": sum(seconds), "forwards": len(calls),
            "batches": stats["generation_batches"], "completions": hash(texts)}


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
