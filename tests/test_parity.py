"""One objective, two engines: losses, gradients, and whole runs in the tiny world."""

import os
import socket
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from safetensors.torch import load_file

from paperlib.environment import ROOT
from paperlib.experiments.recipes import recipe
from paperlib.files import read_json, read_jsonl
from paperlib.rl import trl_engine
from paperlib.rl.train import train
from paperlib.tasks.tiny import MODEL_DIR
from tests.trl_world import loss_parity, with_our_sampler

pytestmark = pytest.mark.usefixtures("one_thread")
LOSSES = [("grpo", 0.0), ("grpo", 0.04), ("dapo", 0.0), ("dapo", 0.04), ("dr_grpo", 0.0),
          ("dr_grpo", 0.04)]  # fmt: skip


@pytest.mark.parametrize(("loss_type", "beta"), LOSSES)
def test_loss_and_gradient_of_a_fixed_batch(tmp_path, loss_type, beta):
    """Truncated rows masked, prompts and completions padded, two mini-batches of two
    micro-batches, both clips and the dual clip active: 1e-5 relative."""
    for loss, gradient in loss_parity(loss_type, beta, tmp_path):
        assert loss < 1e-5 and gradient < 1e-5, (loss, gradient)


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
    config = replace(  # every group kept, since the engines resample otherwise
        recipe(paper, method, "smoke", 0), num_generations=4, max_steps=steps, save_steps=4,
        dynamic_sampling=False, max_completion_length=48,
    )
    with_our_sampler(monkeypatch)
    ours, theirs = tmp_path / "ours", tmp_path / "trl"
    train(config, ours, device="cpu", progress=False)
    trl_engine.train(replace(config, engine="trl"), theirs, device="cpu", progress=False)
    a, b = rollouts(ours), rollouts(theirs)
    assert list(a.columns) == list(b.columns)
    for column in a.columns:
        if column == "layer_logits":  # in TRL of wrong answers only
            wrong = a["accuracy"] == 0
            x, y = np.stack(a[column][wrong]), np.stack(b[column][wrong])
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
