"""The update: one pass over a generation batch, in mini-batches, each cut into micro-batches."""

import math
from collections import Counter
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from paperlib.rl.collect import Batch
from paperlib.rl.config import RunConfig
from paperlib.rl.logps import completion_logps, micro_batches
from paperlib.rl.objective import add_entropy_advantage, policy_loss

MEANS = ("entropy", "kl", "clip_low", "clip_high", "dual_clip")  # over tokens


def autocast(config: RunConfig, device: torch.device) -> torch.autocast:
    """bf16 autocast if the config asks for it (train() checks that the device can)."""
    return torch.autocast(device.type, torch.bfloat16, enabled=config.precision == "bf16")


def update(
    config: RunConfig, model: Any, reference: Any, optimizer: torch.optim.Optimizer,
    batch: Batch, advantages: Tensor,
) -> dict[str, float]:
    """``mini_batches`` optimiser steps on one batch of rollouts; returns metrics of it.

    ``reference`` is the initial model if ``config.beta`` > 0; ``advantages`` are ``[n]``. A step
    whose loss or gradient is not finite is left out and counted in ``skipped_updates``, and
    ``batch.trouble`` says why.
    """
    n = len(batch.completion_ids)
    groups = -(-n // config.num_generations // config.mini_batches)  # a mini-batch has whole ones
    parts = [rows.tolist() for rows in torch.arange(n).split(groups * config.num_generations)]
    if config.precision == "bf16" and config.mini_batches > 1:
        # Rounding differs between decoding and this forward pass; the ratio must not see that. The
        # first update's own log-probabilities serve where no other update comes before.
        with torch.no_grad():
            for part in _cut(config, batch, range(n)):
                logps, _, mask = _forward(config, model, batch, part)
                for row, values, real in zip(part, logps, mask, strict=True):
                    batch.logps[row] = values[real].cpu()
    model.train()
    if config.gradient_checkpointing:
        model.activation_checkpointing_enable({"use_reentrant": False})
    totals: Counter[str] = Counter()
    ratios, norms, losses = [], [], []
    for rows in parts:
        loss, stats = _backward(config, model, reference, batch, advantages, rows)
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), config.max_grad_norm)
        if torch.isfinite(norm) and math.isfinite(loss):
            optimizer.step()
            norms.append(float(norm))
            losses.append(loss)
        else:
            batch.trouble.append(_why_skipped(config, model, batch, advantages, rows))
        optimizer.zero_grad(set_to_none=True)
        ratios.append(stats.pop("ratio_max"))
        totals.update(stats)
    if config.gradient_checkpointing:
        model.activation_checkpointing_disable()  # it would switch the cache off while sampling
    model.eval()
    tokens = max(totals["tokens"], 1)
    return {
        "loss": sum(losses) / max(len(losses), 1),
        "grad_norm": sum(norms) / max(len(norms), 1),
        **{name: totals[name] / tokens for name in MEANS},
        "kl_clamped": totals["kl_clamped"],
        "ratio_max": max(ratios),
        "updates": len(losses),
        "skipped_updates": len(parts) - len(losses),
    }


def _why_skipped(
    config: RunConfig, model: Any, batch: Batch, advantages: Tensor, rows: list[int]
) -> str:
    """Which rollouts of a mini-batch made loss or gradient not finite, by one more forward pass."""
    bad, what = [i for i in rows if not advantages[i].isfinite()], "an advantage"
    if not bad:
        what = "a log-probability under the policy"
        with torch.no_grad():
            for part in _cut(config, batch, rows):
                logps = _forward(config, model, batch, part)[0].cpu()
                bad += [i for i, row in zip(part, logps, strict=True) if not row.isfinite().all()]
    text = "an update was skipped, its loss or gradient was not finite"
    if not bad:
        return f"{text} although every log-probability is"
    problem = batch.rollouts.problem_ids[min(bad)]
    return (f"{text}: rollout {min(bad)} (problem {problem}) has {what} that is not, as "
            f"{len(bad)} of {len(rows)} have")


def _backward(
    config: RunConfig, model: Any, reference: Any, batch: Batch, advantages: Tensor, rows: list[int]
) -> tuple[float, dict[str, float]]:
    """Gradient of one mini-batch, summed over micro-batches of at most micro_batch_tokens."""
    left_out = batch.rollouts.truncated & config.mask_truncated_completions
    num_tokens = sum(len(batch.completion_ids[i]) for i in rows if not left_out[i])
    total, ratio_max, sums = 0.0, 0.0, Counter()
    for part in _cut(config, batch, rows):
        logps, entropy, mask = _forward(config, model, batch, part)
        ref_logps = None
        if config.beta:
            with torch.no_grad():
                ref_logps = _forward(config, reference, batch, part)[0]
        mask = mask & ~torch.as_tensor(left_out[part], device=mask.device)[:, None]
        credit = advantages[part].to(logps.device)
        if config.entropy_alpha:
            credit = add_entropy_advantage(
                credit, entropy, alpha=config.entropy_alpha, kappa=config.entropy_kappa
            )
        old = logps.detach()
        if config.precision != "bf16" or config.mini_batches > 1:
            old = pad_sequence([batch.logps[i] for i in part], batch_first=True).to(logps.device)
        loss, stats = policy_loss(
            logps, old, credit, mask, epsilon=config.epsilon,
            epsilon_high=config.epsilon_high, loss_type=config.loss_type, num_sequences=len(rows),
            num_tokens=num_tokens, max_completion_length=config.max_completion_length,
            beta=config.beta, ref_logps=ref_logps, dual_clip=config.dual_clip,
        )
        loss.backward()
        total += loss.item()
        stats["entropy"] = (entropy * mask).sum()
        ratio_max = max(ratio_max, float(stats.pop("ratio_max")))
        sums.update({name: float(value) for name, value in stats.items()})
    return total, {**sums, "ratio_max": ratio_max}


def _forward(config: RunConfig, model: Any, batch: Batch, rows: list[int]):
    with autocast(config, model.device):
        return completion_logps(
            model, [batch.prompt_ids[i] for i in rows], [batch.completion_ids[i] for i in rows],
            temperature=config.temperature,
        )


def _cut(config: RunConfig, batch: Batch, rows: Iterable[int]) -> list[list[int]]:
    """Micro-batches of ``rows``."""
    return micro_batches(batch.prompt_ids, batch.completion_ids, config.micro_batch_tokens, rows)
