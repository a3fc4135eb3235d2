"""Prompts in, one step's graded groups out: data order, sampling, DAPO's dynamic sampling."""

from __future__ import annotations

import functools
import hashlib
import random
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import torch

from paperlib.errors import UserError
from paperlib.methods.rollouts import Rollouts
from paperlib.rl.config import RunConfig
from paperlib.rl.layer_logits import answer_token
from paperlib.rl.objective import groups_without_spread
from paperlib.rl.policy import check_positions, end_tokens, pad_token
from paperlib.rl.sampling import Samples, sample_groups
from paperlib.tasks.data import Problem
from paperlib.tasks.grading import grade_all
from paperlib.tasks.prompts import build_prompt
from paperlib.tasks.symbolic import failures as grading_failures


@dataclass
class PromptStream:
    """Problems in a seeded order, shuffled anew every epoch; a last partial batch runs on into
    the next epoch, so no problem is ever left out."""

    problems: list[Problem]
    prompt_ids: list[list[int]]
    seed: int
    drawn: int = 0  # problems drawn so far: the whole state

    def next(self, count: int) -> list[int]:
        """Indices of the next ``count`` problems."""
        out, order = [], functools.cache(self._order)
        for position in range(self.drawn, self.drawn + count):
            epoch, offset = divmod(position, len(self.problems))
            out.append(order(epoch)[offset])
        self.drawn += count
        return out

    def _order(self, epoch: int) -> list[int]:
        order = list(range(len(self.problems)))
        random.Random(f"order-{self.seed}-{epoch}").shuffle(order)
        return order


def make_stream(
    config: RunConfig, problems: list[Problem], model: Any, tokenizer: Any
) -> PromptStream:
    """The stream of all problems whose prompt fits.

    Raises:
        UserError: fewer of them than one generation batch needs, or one that the model has no
            positions for, with its completion.
    """
    prompts = [build_prompt(tokenizer, p.question, config.prompt) for p in problems]
    fits = [i for i, ids in enumerate(prompts) if len(ids) <= config.max_prompt_length]
    if len(fits) < config.prompts_per_step:
        raise UserError(
            f"{len(fits)} prompts < {config.prompts_per_step} prompts per generation batch: data "
            f"set {config.dataset!r} has {len(problems)} problems, {len(problems) - len(fits)} of "
            f"them over max_prompt_length = {config.max_prompt_length} tokens"
        )
    stream = PromptStream([problems[i] for i in fits], [prompts[i] for i in fits], config.seed)
    check_positions(model, stream.prompt_ids, config.max_completion_length)
    return stream


@dataclass
class Batch:
    """One step's kept groups; every list has one entry per rollout."""

    rollouts: Rollouts
    prompt_ids: list[list[int]]
    completion_ids: list[list[int]]
    logps: list[torch.Tensor]  # log-probabilities under the sampling policy
    trouble: list[str] = field(default_factory=list)  # what went wrong with it, for the user


def collect(
    config: RunConfig, step: int, stream: PromptStream, model: Any, tokenizer: Any
) -> tuple[Batch | None, dict[str, float]]:
    """Sample and grade one step's groups.

    DAPO (``dynamic_sampling``): groups whose raw accuracy has no spread are dropped and further
    generation batches drawn until ``prompts_per_step`` mixed groups are there, the first of them
    kept; after ``max_generation_batches`` the step uses the mixed groups it has. Dropped groups
    are never seen by a reward term.

    Returns:
        The batch, None if there is no mixed group at all, and counts for the metrics.
    """
    kept: list[Batch] = []
    stats = {"generation_batches": 0, "groups_drawn": 0, "groups_dropped": 0}
    accuracies: list[float] = []
    failed_before = grading_failures.total()
    while len(kept) < config.prompts_per_step:
        groups = _sample_batch(config, step, int(stats["generation_batches"]), stream, model,
                               tokenizer)
        stats["generation_batches"] += 1
        stats["groups_drawn"] += len(groups)
        accuracies += [float(g.rollouts.accuracy.mean()) for g in groups]
        if not config.dynamic_sampling:
            kept = groups
            break
        mixed = [g for g in groups if not groups_without_spread(
            torch.as_tensor(g.rollouts.accuracy), config.num_generations).item()]
        stats["groups_dropped"] += len(groups) - len(mixed)
        kept += mixed
        if stats["generation_batches"] == config.max_generation_batches:
            break
    kept = kept[: config.prompts_per_step]
    stats["groups_kept"] = len(kept)
    stats["accuracy_drawn"] = float(np.mean(accuracies))
    stats["grading_failures"] = grading_failures.total() - failed_before
    return (_join(kept) if kept else None), stats


def _sample_batch(config, step, draw, stream, model, tokenizer) -> list[Batch]:
    """One generation batch, as a list of single groups."""
    indices = stream.next(config.prompts_per_step)
    # The generator depends on the step alone: a resumed run draws the same numbers.
    digest = hashlib.sha256(f"sample-{config.seed}-{step}-{draw}".encode()).digest()
    generator = torch.Generator(model.device).manual_seed(int.from_bytes(digest[:7]))
    # a term that looks at layer logits says which ones (MEDS)
    asking = next((t for t in config.terms if getattr(t, "needs_layer_logits", False)), None)
    try:
        samples = sample_groups(
            model, [stream.prompt_ids[i] for i in indices], config.num_generations,
            max_completion_length=config.max_completion_length, temperature=config.temperature,
            top_p=config.top_p, generator=generator, eos_token_ids=end_tokens(model, tokenizer),
            pad_token_id=pad_token(tokenizer),
            layer_logits=asking.settings.logit if asking else None,
        )
    except UserError as error:
        raise UserError(f"step {step}, problems from {stream.problems[indices[0]].id} on: {error}"
                        ) from None
    texts = tokenizer.batch_decode(samples.completion_ids, skip_special_tokens=True)
    asked = [stream.problems[i] for i in indices for _ in range(config.num_generations)]
    accuracy = np.array(grade_all(texts, [problem.answer for problem in asked],
                                  questions=[problem.question for problem in asked]), dtype=float)
    features = None
    if asking:
        features = answer_logits(tokenizer, samples, texts, asking.settings.position)
    size, groups = config.num_generations, []
    for place, index in enumerate(indices):
        problem, rows = stream.problems[index], slice(place * size, (place + 1) * size)
        ids = samples.completion_ids[rows]
        groups.append(Batch(
            Rollouts(
                step=step, num_generations=size,
                problem_ids=[problem.id] * size, questions=[problem.question] * size,
                golds=[problem.answer] * size, completions=texts[rows],
                lengths=np.array([len(row) for row in ids]),
                truncated=samples.truncated[rows].numpy(),
                accuracy=accuracy[rows],
                max_completion_length=config.max_completion_length,
                layer_logits=None if features is None else features[rows],
            ),
            [stream.prompt_ids[index]] * size, ids, samples.logps[rows],
        ))
    return groups


def answer_logits(
    tokenizer: Any, samples: Samples, texts: list[str], position: str
) -> np.ndarray:
    """``[n, layers]`` float32: layer logits at each completion's answer, NaN where it has none."""
    assert samples.layer_logits is not None
    rows, _, layers = samples.layer_logits.shape
    out = np.full((rows, layers), np.nan, dtype=np.float32)
    for row, (ids, text) in enumerate(zip(samples.completion_ids, texts, strict=True)):
        token = answer_token(tokenizer, ids, text, position)
        if token is not None:
            out[row] = samples.layer_logits[row, token].numpy()
    return out


def _join(parts: list[Any]) -> Any:
    """One dataclass of several alike: lists and arrays end to end, all else is the first's."""

    def joined(values: list[Any]) -> Any:
        if isinstance(values[0], list):
            return sum(values, [])
        if isinstance(values[0], np.ndarray):
            return np.concatenate(values)
        return _join(values) if isinstance(values[0], Rollouts) else values[0]

    names = [item.name for item in fields(parts[0])]
    return type(parts[0])(**{n: joined([getattr(part, n) for part in parts]) for n in names})
