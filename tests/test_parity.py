"""One objective, two engines: losses, gradients, and whole runs in the tiny world."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file

from paperlib.environment import ROOT
from paperlib.experiments.recipes import recipe
from paperlib.files import read_json, read_jsonl
from paperlib.methods.rollouts import Rollouts
from paperlib.rl import trl_engine
from paperlib.rl.collect import Batch
from paperlib.rl.policy import load_policy
from paperlib.rl.train import train
from paperlib.rl.trl_batches import deal
from paperlib.rl.trl_engine import make_trainer
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

    trainer.current_gradient_accumulation_steps = 2
    dealt, _ = deal(config, trl_rows(batch, config, reference), torch.arange(len(advantages)),
                    advantages, micro_batch=trainer.args.per_device_train_batch_size)  # fmt: skip
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


def without_resampling(paper, method, **changes):
    """A smoke recipe of three steps with every group kept, since the engines resample otherwise."""
    small = {"num_generations": 4, "max_steps": 4, "save_steps": 4, "dynamic_sampling": False,
             "max_completion_length": 48}  # fmt: skip
    return replace(recipe(paper, method, "smoke", 0), **{**small, **changes})


def both_engines(config, tmp_path, monkeypatch):
    """The run of ``config`` on both engines, TRL with our sampler's random numbers."""
    real = trl_engine.make_trainer

    def make(*args, **kwargs):
        trainer = real(*args, **kwargs)
        our_sampler(trainer)
        return trainer

    monkeypatch.setattr(trl_engine, "make_trainer", make)
    train(config, tmp_path / "ours", device="cpu", progress=False)
    trl_engine.train(replace(config, engine="trl"), tmp_path / "trl", device="cpu", progress=False)
    return tmp_path / "ours", tmp_path / "trl"


def distance(a, b):
    return sum(float((a[k] - b[k]).square().sum()) for k in a) ** 0.5


def rollouts(folder):
    return pd.concat(map(pd.read_parquet, sorted((folder / "rollouts").glob("*.parquet"))))


@pytest.mark.parametrize(("paper", "method", "steps"), [
    ("meds", "GRPO", 2),
    pytest.param("memory_r", "Memory-R+", 4, marks=pytest.mark.slow),
    pytest.param("meds", "MEDS", 4, marks=pytest.mark.slow),
])  # fmt: skip
def test_a_run_on_both_engines(tmp_path, monkeypatch, paper, method, steps):
    """With the same random numbers the engines draw the same completions and reward them alike,
    term by term; losses, norms and final weights agree to rounding."""
    config = without_resampling(paper, method, max_steps=steps)
    ours, theirs = both_engines(config, tmp_path, monkeypatch)
    a, b = rollouts(ours), rollouts(theirs)
    assert list(a.columns) == list(b.columns)
    for column in a.columns:
        if column == "layer_logits":  # of right answers too, since TRL made the forward pass
            x, y = np.stack(a[column]), np.stack(b[column])
            assert np.isfinite(x).any()
            np.testing.assert_allclose(x, y, rtol=1e-3, atol=1e-3)
        elif a[column].dtype.kind == "f":
            # a term of TRL's run sees the last bits of its own embeddings and logits
            np.testing.assert_allclose(a[column], b[column], rtol=1e-4, atol=1e-5, err_msg=column)
        else:
            assert a[column].tolist() == b[column].tolist(), column
    lines = zip(*(read_jsonl(f / "metrics.jsonl") for f in (ours, theirs)), strict=True)
    for one, other in lines:
        for key in set(one) & set(other) - {k for k in one if k.startswith("seconds/")}:
            assert other[key] == pytest.approx(one[key], rel=1e-3, abs=1e-5), key
        only = {"ratio_max", "kl_clamped", "dual_clip", "seconds/checkpoint"}
        assert set(one) ^ set(other) <= only
    checkpoint = f"checkpoints/{steps:06d}"
    x, y, start = (load_file(f / "model.safetensors") for f in
                   (ours / checkpoint, theirs / checkpoint, MODEL_DIR))
    moved = distance(x, start)
    assert moved > 0 and distance(x, y) < 1e-3 * moved


@pytest.mark.slow
def test_two_processes_are_one(tmp_path):
    """A group straddles them; rewards are bit-exact, memories equal after each step, and neither
    evaluation nor the number of processes changes them."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    two, one = tmp_path / "two", tmp_path / "one"

    def start(folder, **env):
        return subprocess.Popen(
            [sys.executable, "-m", "tests.trl_world", str(folder)], cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **env},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip

    launcher = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    ranks = [start(two, RANK=str(r), LOCAL_RANK=str(r), **launcher) for r in (0, 1)]
    for process in [*ranks, start(one)]:
        output, _ = process.communicate(timeout=600)
        assert process.returncode == 0, output[-3000:]
    hashes = [read_json(f) for f in (two / "hashes-0.json", two / "hashes-1.json",
                                     one / "hashes-0.json")]  # fmt: skip
    assert hashes[0] == hashes[1]
    assert len(set(hashes[0])) == 4 and hashes[0][-1] == hashes[0][-2]  # four steps, evaluation
    assert len(hashes[2]) == 5 and hashes[2][-1] == hashes[2][-2]
    a, b = rollouts(one), rollouts(two)
    exact = [c for c in a.columns if c not in ("layer_logits", "advantage")]
    for column in exact:  # completions, lengths, accuracies and every reward term
        assert a[column].tolist() == b[column].tolist(), column
    np.testing.assert_allclose(a["advantage"], b["advantage"], rtol=1e-6)
    x, y = (load_file(f / "checkpoints/000004/model.safetensors") for f in (one, two))
    moved = distance(x, load_file(MODEL_DIR / "model.safetensors"))
    assert 0 < distance(x, y) < 1e-3 * moved
