"""Prompts in, one step's graded groups out: data order, sampling, DAPO's dynamic sampling."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
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
        out: list[int] = []
        while len(out) < count:
            epoch, offset = divmod(self.drawn, len(self.problems))
            order = list(range(len(self.problems)))
            random.Random(f"order-{self.seed}-{epoch}").shuffle(order)
            part = order[offset : offset + count - len(out)]
            out += part
            self.drawn += len(part)
        return out


def make_stream(
    config: RunConfig, problems: list[Problem], model: Any, tokenizer: Any
) -> PromptStream:
    """The stream of all problems whose prompt fits; they must fill one generation batch."""
    prompts = [build_prompt(tokenizer, p.question, config.prompt) for p in problems]
    fits = [i for i, ids in enumerate(prompts) if len(ids) <= config.max_prompt_length]
    if len(fits) < config.prompts_per_step:
        raise UserError(
            f"{len(fits)} prompts < {config.prompts_per_step} prompts per generation batch: "
            f"{config.dataset!r} has {len(problems)} problems, {len(problems) - len(fits)} of them "
            f"over max_prompt_length = {config.max_prompt_length} tokens"
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
    """Sample and grade one step's groups; the batch, and counts for the metrics.

    DAPO (``dynamic_sampling``): groups whose raw accuracy has no spread are dropped and further
    generation batches drawn until ``prompts_per_step`` mixed groups are there, the first of them
    kept; after ``max_generation_batches`` the step uses the mixed groups it has, and its batch is
    None if there is none. Dropped groups are never seen by a reward term.
    """
    size, wanted = config.num_generations, config.prompts_per_step
    kept: list[tuple] = []  # of the mixed groups, a tuple a rollout
    accuracies: list[float] = []  # of all groups drawn
    draws = dropped = 0
    failed_before = grading_failures.total()
    while len(kept) < wanted * size and draws < config.max_generation_batches:
        rows, accuracy = _draw(config, step, draws, stream, model, tokenizer)
        draws += 1
        accuracies += accuracy.reshape(-1, size).mean(1).tolist()
        flat = groups_without_spread(torch.as_tensor(accuracy), size) & config.dynamic_sampling
        dropped += int(flat.sum())
        for group in (~flat).nonzero()[:, 0].tolist():
            kept += rows[group * size : (group + 1) * size]
    kept = kept[: wanted * size]
    counts = {
        "generation_batches": draws, "groups_drawn": len(accuracies), "groups_dropped": dropped,
        "groups_kept": len(kept) // size, "accuracy_drawn": float(np.mean(accuracies)),
        "grading_failures": grading_failures.total() - failed_before,
    }  # fmt: skip
    if not kept:
        return None, counts
    prompt_ids, completion_ids, logps, *columns = map(list, zip(*kept, strict=True))
    rollouts = make_rollouts(step, size, config.max_completion_length, *columns)
    return Batch(rollouts, prompt_ids, completion_ids, logps), counts


def _draw(config, step, draw, stream, model, tokenizer) -> tuple[list[tuple], np.ndarray]:
    """One generation batch: a tuple for each rollout, and their accuracies."""
    size = config.num_generations
    indices = stream.next(config.prompts_per_step)
    # a term that looks at layer logits says which ones (MEDS)
    asking = next((t for t in config.terms if getattr(t, "needs_layer_logits", False)), None)
    try:
        samples = sample_groups(
            model, [stream.prompt_ids[i] for i in indices], size,
            max_completion_length=config.max_completion_length, temperature=config.temperature,
            top_p=config.top_p, seed=f"{config.seed}-{step}-{draw}",
            eos_token_ids=end_tokens(model, tokenizer), pad_token_id=pad_token(tokenizer),
            layer_logits=asking.settings.logit if asking else None,
        )
    except UserError as error:
        raise UserError(f"step {step}, problems from {stream.problems[indices[0]].id} on: {error}"
                        ) from None
    ids = samples.completion_ids
    of_row = [i for i in indices for _ in range(size)]
    problems = [stream.problems[i] for i in of_row]
    golds, questions = [p.answer for p in problems], [p.question for p in problems]
    texts = tokenizer.batch_decode(ids, skip_special_tokens=True)
    accuracy = np.array(grade_all(texts, golds, questions=questions), dtype=float)
    logits = [None] * len(texts)
    if asking:
        logits = answer_logits(tokenizer, samples, texts, asking.settings.position)
    return list(zip(
        [stream.prompt_ids[i] for i in of_row], ids, samples.logps, problems, texts, map(len, ids),
        samples.truncated.tolist(), accuracy, logits, strict=True,
    )), accuracy  # fmt: skip


def make_rollouts(
    step: int, num_generations: int, max_completion_length: int, problems: Sequence[Problem],
    texts: Sequence[str], lengths: Sequence[int], truncated: Sequence[bool],
    accuracy: Sequence[float], layer_logits: Sequence[np.ndarray | None] = (None,),
) -> Rollouts:
    """The rollouts of these problems, one a completion; see the fields there."""
    return Rollouts(
        step=step, num_generations=num_generations,
        problem_ids=[problem.id for problem in problems],
        questions=[problem.question for problem in problems],
        golds=[problem.answer for problem in problems], completions=list(texts),
        lengths=np.array(lengths), truncated=np.array(truncated),
        accuracy=np.array(accuracy, dtype=float), max_completion_length=max_completion_length,
        layer_logits=None if layer_logits[0] is None else np.stack(layer_logits),
    )


def answer_logits(
    tokenizer: Any, samples: Samples, texts: list[str], position: str
) -> np.ndarray:
    """``[n, layers]`` float32: layer logits at each completion's answer, NaN where it has none."""
    out = np.full((len(texts), samples.layer_logits.shape[2]), np.nan, dtype=np.float32)
    for row, (ids, text) in enumerate(zip(samples.completion_ids, texts, strict=True)):
        token = answer_token(tokenizer, ids, text, position)
        if token is not None:
            out[row] = samples.layer_logits[row, token].numpy()
    return out
