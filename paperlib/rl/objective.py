"""The objective as pure functions: advantages and the clipped policy loss.

Read ``policy_loss`` from top to bottom for the whole update. GRPO (Shao et al. 2024) is the plain
text; lines marked DAPO, Dr. GRPO, ENTROPY ADVANTAGE or DUAL CLIP are where the variants differ.

Shapes: ``n`` completions of one generation batch, groups of ``num_generations`` next to each
other; ``B`` completions of one micro-batch; ``T`` tokens of its widest completion.
"""

import torch
from torch import Tensor

from paperlib.errors import check_choice

# exp(20) = 4.9e8: far outside any trust region, far inside float32
MAX_LOG_RATIO = 20.0
ROUNDING = 1e-12  # of a sum of reward terms in float64: 0.1 + 0.2 and 0.3 are one reward


def groups_without_spread(values: Tensor, num_generations: int) -> Tensor:
    """Which groups have one of the values ``[n]`` for all completions; ``[groups]`` bool.

    Compares the largest value with the smallest, up to ROUNDING: the floating-point standard
    deviation of 16 x 0.7 is not 0, and Adam makes a full step of the smallest gradient if all are
    small. DAPO drops such groups by raw accuracy, and they have no advantage.
    """
    groups = values.reshape(-1, num_generations)
    return groups.amax(1) - groups.amin(1) <= ROUNDING


def group_advantages(
    rewards: Tensor, num_generations: int, *, scale_rewards: bool, advantage_epsilon: float,
    only_mixed: Tensor | None = None,
) -> Tensor:
    """``A_i = (r_i - mean(r)) / (std(r) + advantage_epsilon)`` within each group; ``[n]`` float32,
    computed in float64. ``std`` divides by G - 1, as TRL and verl do. 0 in groups without spread.

    ``scale_rewards=False`` leaves out the division; with ``only_mixed``, raw accuracies ``[n]``,
    groups without spread in them are not divided: there the reward's spread is shaping alone, and
    dividing blows it up to a full-size advantage.
    """
    groups = rewards.double().reshape(-1, num_generations)
    advantages = groups - groups.mean(1, keepdim=True)
    if scale_rewards:  # Dr. GRPO: scale_rewards=False
        scale = groups.std(1, keepdim=True, correction=1) + advantage_epsilon
        if only_mixed is not None:
            scale[groups_without_spread(only_mixed, num_generations)] = 1.0
        advantages = advantages / scale
    flat = groups_without_spread(rewards, num_generations)
    return advantages.masked_fill(flat[:, None], 0.0).flatten().float()


def add_entropy_advantage(
    advantages: Tensor, entropy: Tensor, *, alpha: float, kappa: float
) -> Tensor:
    """ENTROPY ADVANTAGE (Cheng et al. 2025): ``A_t = A + min(alpha H_t, |A| / kappa)``.

    The cap keeps the sign of ``A`` for ``kappa > 1``. ``advantages`` are ``[B]``, ``entropy`` of
    each token's distribution in nats ``[B, T]``, as is the result; it carries no gradient.
    """
    per_row = advantages[:, None]
    return per_row + torch.minimum(alpha * entropy.detach(), per_row.abs() / kappa)


def policy_loss(
    logps: Tensor, old_logps: Tensor, advantages: Tensor, mask: Tensor, *,
    epsilon: float, epsilon_high: float, loss_type: str, num_sequences: int, num_tokens: int,
    max_completion_length: int, beta: float = 0.0, ref_logps: Tensor | None = None,
    dual_clip: float | None = None,
) -> tuple[Tensor, dict[str, Tensor]]:
    """The loss of one micro-batch, normalised by the totals of its mini-batch: those of all its
    micro-batches *sum* to the loss of the mini-batch, however it is cut.

    Args:
        logps, old_logps, ref_logps: ``[B, T]`` log-probabilities under the policy, with gradient,
            the one that sampled, and the reference of the KL, whose weight is ``beta``.
        advantages: ``[B]``, or ``[B, T]`` with the entropy advantage.
        mask: ``[B, T]`` bool or 0/1, the real completion tokens. A row or a batch may be empty.
        num_sequences, num_tokens: completions in the mini-batch, and their real tokens.
        dual_clip: bound on the loss of tokens with negative advantage, in units of ``|A|``.

    Returns the loss and detached sums over tokens: ``tokens``, ``clip_low``, ``clip_high``,
    ``dual_clip``, ``kl``, ``kl_clamped``; and the maximum ``ratio_max`` (0 if there is no token).
    """
    check_choice("loss_type", loss_type, ("grpo", "dapo", "dr_grpo"))
    mask = mask.bool()
    advantages = advantages[:, None] if advantages.dim() == 1 else advantages

    # Clamped because an overflow to infinity turns the gradient of the branch that min() does not
    # choose into 0 * inf; masked because padding may hold anything.
    log_ratio = (logps - old_logps).masked_fill(~mask, 0.0)
    ratio = log_ratio.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
    clipped_ratio = ratio.clamp(1 - epsilon, 1 + epsilon_high)  # DAPO: epsilon_high > epsilon
    loss = -torch.minimum(ratio * advantages, clipped_ratio * advantages)

    negative = advantages < 0
    dual_clipped = torch.zeros_like(mask)
    if dual_clip is not None:  # DUAL CLIP (Ye et al. 2020)
        bound = -dual_clip * advantages
        dual_clipped = negative & (loss > bound)
        loss = torch.where(negative, torch.minimum(loss, bound), loss)

    kl, kl_clamped = torch.zeros_like(ratio), torch.zeros_like(mask)
    if beta != 0.0:  # DAPO, Dr. GRPO: beta = 0
        difference = (ref_logps - logps).masked_fill(~mask, 0.0)
        kl_clamped = difference.abs() > MAX_LOG_RATIO
        difference = difference.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
        kl = difference.exp() - difference - 1  # k3, unbiased and never negative (Schulman 2020)
        loss = loss + beta * kl

    loss = loss.masked_fill(~mask, 0.0)
    if loss_type == "grpo":  # mean over the tokens of each completion, then over completions
        total = (loss.sum(1) / mask.sum(1).clamp(min=1)).sum() / max(num_sequences, 1)
    elif loss_type == "dapo":  # DAPO: every token of the mini-batch weighs the same
        total = loss.sum() / max(num_tokens, 1)
    else:  # Dr. GRPO: a constant instead of the completion's length
        total = loss.sum() / max(num_sequences * max_completion_length, 1)

    found = {
        "clip_low": negative & (ratio < 1 - epsilon),
        "clip_high": (advantages > 0) & (ratio > 1 + epsilon_high),
        "dual_clip": dual_clipped, "kl": kl.detach(), "kl_clamped": kl_clamped,
    }  # fmt: skip
    sums = {name: values.masked_fill(~mask, 0).sum() for name, values in found.items()}
    largest = ratio.detach().masked_fill(~mask, 0).max() if mask.numel() else mask.sum()
    return total, {"tokens": mask.sum(), "ratio_max": largest, **sums}
