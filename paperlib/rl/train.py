"""The loop, on a page: sample groups, grade, reward, advantages, update, record.

What a run leaves in its folder:

    config.json       the RunConfig                environment.json   commit, versions, machine
    metrics.jsonl     one line a step              rollouts/000001.parquet, ...
    checkpoints/000015/, ...                       tensorboard/
    complete.json     {"reason", "step", "seconds"}, written last

Started again on the same folder, it goes on from the newest checkpoint; on the CPU the outcome is
bit-identical to a run that was never interrupted.
"""

import copy
import math
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from paperlib.environment import environment_record
from paperlib.errors import UserError
from paperlib.files import as_json, write_json_atomic
from paperlib.methods.rollouts import RewardTerm, call_terms
from paperlib.rl.checkpoint import (
    load_state,
    newest_checkpoint,
    restore_rng,
    rng_state,
    save_checkpoint,
)
from paperlib.rl.collect import collect, make_stream
from paperlib.rl.config import RunConfig, finished
from paperlib.rl.logps import check_head
from paperlib.rl.logs import RunLog, Watch, check_trackers, rollout_metrics, write_rollouts
from paperlib.rl.objective import group_advantages, groups_without_spread
from paperlib.rl.policy import check_precision, load_policy, resolve_device
from paperlib.rl.update import update
from paperlib.tasks.data import load_problems


def train(
    config: RunConfig, folder: Path, *, device: str = "auto", progress: bool = True,
    watch: Watch | None = None, report_to: str = "tensorboard",
) -> None:
    """Train the run in ``folder``, or resume it; a finished run is left as it is.

    ``watch`` gets the metrics of all steps so far after each step and returns lines to show, such
    as the warnings of ``paperlib.evaluation.collapse.CollapseWatch``. ``report_to``: who else gets
    the metrics, see :mod:`paperlib.rl.logs`.
    """
    folder = Path(folder)
    if finished(config, folder):
        return
    if config.engine != "ours":
        raise UserError(f"engine is {config.engine!r}: use paperlib.rl.trl_engine.train")
    trackers = check_trackers(report_to)
    place = resolve_device(device)
    check_precision(config.precision, place)
    problems = load_problems(config.dataset)
    terms = reward_terms(config)
    open_folder(config, folder, str(place))
    checkpoint = newest_checkpoint(folder, config.save_steps)

    seed_everything(config.seed)
    model, tokenizer = load_policy(checkpoint or config.model, place)
    check_head(model)
    reference = None
    if config.beta:  # the KL is to the initial model, also after a resume
        reference = load_policy(config.model, place)[0].requires_grad_(False)
    stream = make_stream(config, problems, model, tokenizer)
    optimizer = make_optimizer(config, model)
    step, empty_steps, seconds, row = 0, 0, 0.0, None
    if checkpoint:
        state = load_state(checkpoint)
        step, empty_steps, seconds = state["step"], state["empty_steps"], state["seconds"]
        row = state.get("metrics")  # a kill may come before they are in metrics.jsonl
        optimizer.load_state_dict(state["optimizer"])
        stream.drawn = state["drawn"]
        restore_terms(terms, state["terms"])
        restore_rng(state["rng"], place)
    began = time.time() - seconds

    def save() -> None:
        save_checkpoint(folder, step, model, tokenizer, {
            "step": step, "empty_steps": empty_steps, "drawn": stream.drawn,
            "seconds": time.time() - began, "metrics": row,
            "optimizer": optimizer.state_dict(), "rng": rng_state(place),
            "terms": {t.name: t.state_dict() for t in terms if hasattr(t, "state_dict")},
        })

    if config.max_steps == 0 and not checkpoint:
        save()
    log = RunLog(folder, step, config.max_steps, progress=progress, watch=watch,
                 trackers=trackers, last=row, max_skipped_steps=config.max_skipped_steps)
    try:
        while step < config.max_steps and empty_steps < config.max_empty_steps:
            step += 1
            clock: dict[str, float] = {}
            rate = config.learning_rate * rate_factor(config, step)
            for parameters in optimizer.param_groups:
                parameters["lr"] = rate
            with timed(clock, "sample"):
                batch, metrics = collect(config, step, stream, model, tokenizer)
            empty_steps = 0 if batch else empty_steps + 1
            if batch:
                with timed(clock, "terms"):
                    values, rewards = call_terms(terms, batch.rollouts)
                    advantages, flat = advantages_of(config, rewards, batch.rollouts.accuracy)
                with timed(clock, "update"):
                    metrics |= update(config, model, reference, optimizer, batch, advantages)
                metrics |= rollout_metrics(batch.rollouts, values, rewards, flat)
                write_rollouts(folder, batch.rollouts, values, rewards, advantages.numpy())
            row = as_json({
                "step": step, "epoch": stream.drawn / len(stream.problems),
                "learning_rate": rate, **metrics, **clock,
            })
            last = step == config.max_steps or empty_steps == config.max_empty_steps
            if last or step % config.save_steps == 0:
                with timed(clock, "checkpoint"):
                    save()
            log.step({**row, **clock}, batch.trouble if batch else ())
    finally:
        log.close()
    log.complete(end_reason(config, empty_steps), time.time() - began)


def end_reason(config: RunConfig, empty_steps: int) -> str:
    """Why a run ends, for complete.json."""
    if empty_steps < config.max_empty_steps:
        return "finished"
    return f"no group with spread in accuracy for {empty_steps} steps"


def rate_factor(config: RunConfig, step: int) -> float:
    """On the learning rate in a generation step, from 1, as in transformers' schedules: linear from
    0 to 1 over ``warmup_steps``, then 1 or (``cosine``) half a cosine to 0 at ``max_steps``."""
    done, warmup = step - 1, config.warmup_steps
    if done < warmup:
        return done / warmup
    if config.lr_scheduler_type == "constant_with_warmup":
        return 1.0
    progress = (done - warmup) / max(1, config.max_steps - warmup)
    return 0.5 * (1.0 + math.cos(math.pi * min(progress, 1.0)))


def reward_terms(config: RunConfig) -> list[RewardTerm]:
    """The run's own terms, each of which is logged by its name."""
    terms = [copy.deepcopy(term) for term in config.terms]
    names = [term.name for term in terms]
    if len(set(names)) < len(names):
        raise UserError(f"two reward terms have the same name: {', '.join(names)}")
    return terms


def restore_terms(terms: list[RewardTerm], states: dict[str, Any]) -> None:
    """Give the terms of a resumed run what they remembered; with a memory missing, or one too
    many, it would silently become another run."""
    held = {term.name: term for term in terms if hasattr(term, "state_dict")}
    if held.keys() != states.keys():
        raise UserError(
            f"the checkpoint holds the memory of {', '.join(states) or 'no reward term'}; this run "
            f"needs that of {', '.join(held) or 'none'}. Delete or move its folder to train it anew"
        )
    for name, term in held.items():
        term.load_state_dict(states[name])


def advantages_of(
    config: RunConfig, rewards: np.ndarray, accuracy: np.ndarray
) -> tuple[torch.Tensor, float]:
    """Group advantages ``[n]`` and the share of groups whose rewards have no spread."""
    values, size = torch.as_tensor(rewards), config.num_generations
    only_mixed = torch.as_tensor(accuracy) if config.scale_only_mixed_groups else None
    return group_advantages(
        values, size, scale_rewards=config.scale_rewards, only_mixed=only_mixed,
        advantage_epsilon=config.advantage_epsilon,
    ), groups_without_spread(values, size).double().mean().item()


def make_optimizer(config: RunConfig, model: Any) -> torch.optim.Optimizer:
    """AdamW over all parameters, fused where the device has it."""
    return torch.optim.AdamW(
        model.parameters(), lr=config.learning_rate, eps=config.adam_epsilon,
        betas=(config.adam_beta1, config.adam_beta2), weight_decay=config.weight_decay,
        fused=model.device.type == "cuda",
    )


def open_folder(config: RunConfig, folder: Path, device: str, **more: Any) -> None:
    """Make the folder if there is none. ``more`` goes to environment.json."""
    if not (folder / "config.json").exists():
        write_json_atomic(folder / "environment.json", {**environment_record(device), **more})
        write_json_atomic(folder / "config.json", as_json(config.to_dict()))


def seed_everything(seed: int) -> None:
    """Seed the global generators, for reward terms and models that draw from them."""
    random.seed(seed)
    np.random.seed(seed % 2**32)  # it takes no more
    torch.manual_seed(seed)


@contextmanager
def timed(clock: dict[str, float], name: str) -> Iterator[None]:
    """Keep the block's wall time as the metric ``seconds/<name>``."""
    began = time.perf_counter()
    yield
    clock[f"seconds/{name}"] = round(time.perf_counter() - began, 4)
