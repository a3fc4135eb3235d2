"""One objective, two engines: losses, gradients, and whole runs in the tiny world."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from paperlib.experiments.recipes import recipe
from paperlib.files import read_jsonl
from paperlib.methods.rollouts import Rollouts
from paperlib.rl.collect import Batch
from paperlib.rl.policy import load_policy
from paperlib.rl.trl_engine import make_trainer
from paperlib.rl.trl_engine import train as train_trl
from paperlib.rl.update import _backward
from paperlib.tasks.tiny import MODEL_DIR
from tests.trl_world import our_sampler

pytestmark = pytest.mark.skipif(not MODEL_DIR.exists(), reason="the tiny model is not built")
LOSSES = [("grpo", 0.0), ("grpo", 0.04), ("dapo", 0.0), ("dapo", 0.04), ("dr_grpo", 0.0),
          ("dr_grpo", 0.04)]  # fmt: skip


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def fixed_batch(config, truncated_rows=(3, 6)):
    """16 rows of 4 prompts of different lengths; old logps off by up to 0.5 a token."""
    generator = torch.Generator().manual_seed(0)

    def tokens(n):
        return torch.randint(5, 200, (n,), generator=generator).tolist()

    n, size = config.prompts_per_step * config.num_generations, config.num_generations
    prompts = [tokens(5 + 3 * i) for i in range(config.prompts_per_step)]
    prompt_ids = [prompts[i // size] for i in range(n)]
    completion_ids = [tokens(int(torch.randint(1, 20, (), generator=generator))) for _ in range(n)]
    truncated = np.isin(np.arange(n), truncated_rows)
    rollouts = Rollouts(
        step=1, num_generations=size, problem_ids=[""] * n, questions=[""] * n, golds=[""] * n,
        completions=[""] * n, lengths=np.array([len(c) for c in completion_ids]),
        truncated=truncated, accuracy=np.zeros(n),
        max_completion_length=config.max_completion_length,
    )
    old = [-3 + torch.rand(len(c), generator=generator) for c in completion_ids]
    return (Batch(rollouts, prompt_ids, completion_ids, old),
            torch.randn(n, generator=generator))  # fmt: skip


def near_policy(config, model, batch):
    """Old logps that are the policy's own with noise, so that ratios lie on both sides of the
    clips but not far out."""
    from paperlib.rl.logps import completion_logps

    with torch.no_grad():
        logps, _, _ = completion_logps(
            model, batch.prompt_ids, batch.completion_ids, temperature=config.temperature
        )
    generator = torch.Generator().manual_seed(1)
    batch.logps = [
        row[: len(ids)] + 0.5 * torch.randn(len(ids), generator=generator)
        for row, ids in zip(logps, batch.completion_ids, strict=True)
    ]


def trl_rows(batch, config, reference):
    """The fixed batch as TRL has it: prompts padded on the left, completions on the right."""
    from paperlib.rl.logps import completion_logps
    from paperlib.rl.padding import left_padded

    prompts, prompt_mask, _ = left_padded(batch.prompt_ids, 0, torch.device("cpu"))
    pad = torch.nn.utils.rnn.pad_sequence
    rows = {
        "prompt_ids": prompts, "prompt_mask": prompt_mask,
        "completion_ids": pad([torch.tensor(c) for c in batch.completion_ids], batch_first=True),
        "completion_mask": pad(
            [torch.ones(len(c), dtype=torch.long) for c in batch.completion_ids], batch_first=True
        ),
        "old_per_token_logps": pad(batch.logps, batch_first=True),
    }  # fmt: skip
    if config.mask_truncated_completions:  # as GRPOTrainer._generate_and_score_completions does
        rows["completion_mask"][torch.as_tensor(batch.rollouts.truncated)] = 0
    if reference is not None:
        with torch.no_grad():
            rows["ref_per_token_logps"] = completion_logps(
                reference, batch.prompt_ids, batch.completion_ids, temperature=config.temperature
            )[0]
    return rows


def gradient(model):
    flat = torch.cat([p.grad.flatten() for p in model.parameters()])
    model.zero_grad(set_to_none=True)
    return flat


@pytest.mark.parametrize(("loss_type", "beta"), LOSSES)
def test_loss_and_gradient_of_a_fixed_batch(tmp_path, loss_type, beta):
    """Truncated rows masked, prompts and completions padded, two mini-batches of two
    micro-batches, both clips and the dual clip active: 1e-5 relative."""
    config = replace(
        recipe("meds", "GRPO", "smoke", 0), engine="trl", loss_type=loss_type, beta=beta,
        num_generations=4, mask_truncated_completions=True, epsilon_high=0.28, dual_clip=1.5,
        temperature=0.9, micro_batch_tokens=640,
    )  # fmt: skip
    trainer = make_trainer(config, tmp_path)
    assert trainer.args.gradient_accumulation_steps == 2
    model = trainer.model.train()
    reference = None
    if beta:
        reference = load_policy(config.model)[0]
        with torch.no_grad():  # another model, or the KL is 0
            for p in reference.parameters():
                p.add_(0.02 * torch.randn(p.shape, generator=torch.Generator().manual_seed(2)))
    batch, advantages = fixed_batch(config)
    near_policy(config, model, batch)

    trainer._kept = torch.arange(len(advantages))
    trainer._advantages = advantages
    trainer.current_gradient_accumulation_steps = 2
    dealt = trainer._deal(trl_rows(batch, config, reference))
    assert len(dealt) == 4
    for window, rows in enumerate((range(8), range(8, 16))):
        theirs = 0.0
        for micro in dealt[2 * window : 2 * window + 2]:
            loss = super(type(trainer), trainer)._compute_loss(model, micro)
            loss.backward()
            theirs += loss.item()
        their_gradient = gradient(model)
        ours, stats = _backward(config, model, reference, batch, advantages, list(rows))
        our_gradient = gradient(model)
        assert stats["clipped_low"] and stats["clipped_high"] and stats["dual_clipped"]
        assert theirs == pytest.approx(ours, rel=1e-5)
        error = (their_gradient - our_gradient).norm() / our_gradient.norm()
        assert error < 1e-5, error
