import math
from types import SimpleNamespace

import pytest
import torch

from paperlib.errors import UserError
from paperlib.rl.objective import (
    add_entropy_advantage,
    group_advantages,
    groups_without_spread,
    policy_loss,
)
from paperlib.rl.train import rate_factor


def settings(**changes):
    base = dict(
        epsilon=0.2, epsilon_high=0.2, loss_type="grpo", num_sequences=1, num_tokens=1,
        max_completion_length=10,
    )
    return base | changes


def one_token(ratio, advantage, **changes):
    """Loss, gradient by the log-prob, and stats of a single token with this ratio."""
    logps = torch.tensor([[math.log(ratio)]], requires_grad=True)
    loss, stats = policy_loss(
        logps, torch.zeros(1, 1), torch.tensor([advantage]), torch.ones(1, 1), **settings(**changes)
    )
    loss.backward()
    return loss.item(), logps.grad.item(), stats


# --- advantages


def test_group_advantages_by_hand():
    rewards = torch.tensor([1.0, 0.0, 0.0, 1.0, 3.0, 1.0, 1.0, 1.0])
    centred = group_advantages(rewards, 4, scale_rewards=False, advantage_epsilon=1e-4)
    assert centred.tolist() == [0.5, -0.5, -0.5, 0.5, 1.5, -0.5, -0.5, -0.5]
    scaled = group_advantages(rewards, 4, scale_rewards=True, advantage_epsilon=1e-4)
    std = [math.sqrt(4 * 0.25 / 3)] * 4 + [math.sqrt((2.25 + 3 * 0.25) / 3)] * 4
    expected = [c / (s + 1e-4) for c, s in zip(centred.tolist(), std, strict=True)]
    assert scaled.tolist() == pytest.approx(expected, rel=1e-6)
    assert scaled.dtype == torch.float32


@pytest.mark.parametrize("value, count", [(0.2, 8), (0.7, 16), (0.1, 3), (1 / 3, 7)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [True, False])
def test_equal_rewards_have_exactly_no_advantage(value, count, dtype, scale):
    rewards = torch.full((count,), value, dtype=dtype)
    advantages = group_advantages(rewards, count, scale_rewards=scale, advantage_epsilon=0.0)
    assert (advantages == 0).all()
    assert groups_without_spread(rewards, count).tolist() == [True]


def test_groups_without_spread():
    values = torch.tensor([0.0, 0.0, 0.0, 1.0, 1.0, 1.0])
    assert groups_without_spread(values, 2).tolist() == [True, False, True]


def test_entropy_advantage_by_hand():
    entropy = torch.tensor([[0.5, 10.0], [0.5, 10.0]], requires_grad=True)
    out = add_entropy_advantage(torch.tensor([1.0, -1.0]), entropy, alpha=0.4, kappa=2.0)
    # 0.4 * 0.5 = 0.2 is below the cap |A| / 2 = 0.5; 0.4 * 10 is above
    assert out.flatten().tolist() == pytest.approx([1.2, 1.5, -0.8, -0.5])
    assert not out.requires_grad


# --- policy loss


def test_clipping_by_hand():
    assert one_token(1.1, 2.0)[0] == pytest.approx(-2.2)
    loss, gradient, stats = one_token(1.5, 2.0)  # good token, already pushed up enough
    assert (loss, gradient) == (pytest.approx(-2.4), 0.0)
    assert stats["clip_high"] == 1 and stats["clip_low"] == 0
    loss, gradient, stats = one_token(0.5, -2.0)  # bad token, already pushed down enough
    assert (loss, gradient) == (pytest.approx(1.6), 0.0)
    assert stats["clip_low"] == 1 and stats["clip_high"] == 0
    loss, gradient, stats = one_token(1.5, -2.0)  # never clipped: the pessimistic bound
    assert loss == pytest.approx(3.0) and gradient == pytest.approx(3.0)
    assert stats["clip_low"] == stats["clip_high"] == 0
    assert one_token(0.5, 2.0)[0] == pytest.approx(-1.0)


def test_clip_higher_widens_only_the_upper_side():
    assert one_token(1.25, 1.0, epsilon_high=0.28)[0] == pytest.approx(-1.25)
    assert one_token(1.5, 1.0, epsilon_high=0.28)[0] == pytest.approx(-1.28)
    assert one_token(0.5, -1.0, epsilon_high=0.28)[0] == pytest.approx(0.8)


def test_dual_clip_bounds_only_negative_advantages():
    loss, gradient, stats = one_token(20.0, -2.0, dual_clip=10.0)
    assert (loss, gradient) == (pytest.approx(20.0), 0.0)  # min(20 * 2, 10 * 2)
    assert stats["dual_clip"] == 1
    assert one_token(5.0, -2.0, dual_clip=10.0)[0] == pytest.approx(10.0)
    assert one_token(20.0, 2.0, dual_clip=10.0)[0] == pytest.approx(-2.4)


def test_kl_by_hand():
    logps = torch.tensor([[-1.0, -1.0]], requires_grad=True)
    loss, stats = policy_loss(
        logps, logps.detach(), torch.zeros(1), torch.ones(1, 2),
        **settings(beta=0.5, num_tokens=2), ref_logps=torch.tensor([[-1.0, -2.0]]),
    )
    k3 = math.exp(-1) + 1 - 1
    assert stats["kl"].item() == pytest.approx(k3)
    assert loss.item() == pytest.approx(0.5 * k3 / 2)
    loss.backward()
    # d k3 / d logp = 1 - exp(ref - logp)
    assert logps.grad[0].tolist() == pytest.approx([0.0, 0.5 / 2 * (1 - math.exp(-1))])


def test_extreme_log_probs_stay_finite():
    logps = torch.tensor([[-300.0, -1.0, -400.0]], requires_grad=True)
    loss, stats = policy_loss(
        logps, torch.tensor([[-1.0, -300.0, -1.0]]), torch.tensor([1.0]),
        torch.tensor([[1, 1, 0]]), **settings(beta=0.1), ref_logps=torch.zeros(1, 3),
    )
    loss.backward()
    assert torch.isfinite(loss) and torch.isfinite(logps.grad).all()
    assert stats["kl_clamped"] == 1  # the masked token is not counted


@pytest.mark.parametrize(("difference", "kl", "clamped"), [
    (0.0, 0.0, 0), (5.0, math.exp(5) - 6, 0), (20.0, math.exp(20) - 21, 0),
    (90.0, math.exp(20) - 21, 1), (-90.0, math.exp(-20) + 19, 1),
])
def test_k3_is_clamped_and_counted_before_it_overflows(difference, kl, clamped):
    logps = torch.tensor([[-100.0]], requires_grad=True)
    loss, stats = policy_loss(
        logps, logps.detach(), torch.zeros(1), torch.ones(1, 1), **settings(beta=1.0),
        ref_logps=logps.detach() + difference,
    )
    loss.backward()
    assert loss.item() == pytest.approx(kl) and stats["kl_clamped"] == clamped
    assert torch.isfinite(logps.grad).all()


def test_loss_types_are_named():
    x = torch.zeros(1, 1)
    with pytest.raises(UserError, match="grpo, dapo, dr_grpo"):
        policy_loss(x, x, torch.ones(1), torch.ones(1, 1), **settings(loss_type="ppo"))


def test_reductions_by_hand():
    """Ratio 1, so the loss of a token is -A; lengths 1 and 3, advantages 1 and -2."""
    x = torch.zeros(2, 3)
    mask = torch.tensor([[1, 0, 0], [1, 1, 1]])
    advantages = torch.tensor([1.0, -2.0])
    totals = dict(num_sequences=2, num_tokens=4, max_completion_length=10)
    losses = {
        kind: policy_loss(x, x, advantages, mask, **settings(loss_type=kind, **totals))[0].item()
        for kind in ("grpo", "dapo", "dr_grpo")
    }
    assert losses == pytest.approx(
        {"grpo": (-1 + 2) / 2, "dapo": (-1 + 6) / 4, "dr_grpo": (-1 + 6) / 20}
    )
    by_token = policy_loss(x, x, advantages[:, None].expand(2, 3), mask, **settings(**totals))[0]
    assert by_token == losses["grpo"]


@pytest.mark.parametrize("kind", ["grpo", "dapo", "dr_grpo"])
def test_empty_masks_give_zero(kind):
    logps = torch.full((2, 3), math.nan, requires_grad=True)  # padding may hold anything
    loss, stats = policy_loss(
        logps, torch.zeros(2, 3), torch.ones(2), torch.zeros(2, 3),
        **settings(loss_type=kind, num_sequences=2, num_tokens=0, beta=0.1),
        ref_logps=torch.zeros(2, 3),
    )
    loss.backward()
    assert loss == 0 and (logps.grad == 0).all()
    assert all(value == 0 for value in stats.values())
    loss, stats = policy_loss(
        torch.zeros(2, 0), torch.zeros(2, 0), torch.ones(2), torch.zeros(2, 0),
        **settings(loss_type=kind, num_sequences=2, num_tokens=0),
    )
    assert loss == 0 and stats["ratio_max"] == 0


# --- learning rate


def factor(update, steps, warmup, kind):
    config = SimpleNamespace(max_steps=steps, warmup_steps=warmup, lr_scheduler_type=kind)
    return rate_factor(config, update + 1)


@pytest.mark.parametrize("warmup", [0, 1, 5])
@pytest.mark.parametrize("kind", ["cosine", "constant_with_warmup"])
def test_learning_rate_equals_transformers(kind, warmup):
    from transformers import get_scheduler

    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    scheduler = get_scheduler(kind, optimizer, warmup, num_training_steps=20)
    for step in range(23 if kind == "constant_with_warmup" else 21):
        assert factor(step, 20, warmup, kind) == pytest.approx(
            optimizer.param_groups[0]["lr"], abs=1e-12
        )
        optimizer.step()
        scheduler.step()


def test_learning_rate_by_hand():
    factors = [factor(step, 12, 2, "cosine") for step in (0, 1, 2, 7, 12, 99)]
    assert factors == pytest.approx([0, 0.5, 1, 0.5, 0, 0])


def test_only_mixed_groups_are_scaled():
    """A shaping penalty of 0.05 on one of eight wrong rollouts: 2.47 scaled, -0.044 centred."""
    rewards = torch.tensor([0.0] * 3 + [-0.05] + [0.0] * 4 + [1.0] + [0.0] * 7)
    accuracy = torch.tensor([0.0] * 8 + [1.0] + [0.0] * 7)
    kwargs = {"scale_rewards": True, "advantage_epsilon": 1e-4}
    plain = group_advantages(rewards, 8, **kwargs)
    only = group_advantages(rewards, 8, **kwargs, only_mixed=accuracy)
    assert plain[3].item() == pytest.approx(-2.461, abs=1e-3)
    assert only[3].item() == pytest.approx(-0.04375)
    assert only[0].item() == pytest.approx(0.00625)
    assert torch.equal(plain[8:], only[8:])  # the mixed group is scaled all the same
