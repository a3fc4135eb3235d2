"""Recipes: what a profile may change and what it never changes; every setting of the papers."""

import itertools
import re
from dataclasses import fields

import numpy as np
import pytest
import torch

from paperlib.errors import UserError
from paperlib.evaluation.settings import TASKS
from paperlib.experiments import variants
from paperlib.experiments.benchmarks import BENCHMARKS, task_data
from paperlib.experiments.recipes import (
    LLAMA,
    MATH_7B,
    METHODS,
    PRESETS,
    eval_settings,
    models,
    recipe,
)
from paperlib.rl import collect as collecting
from paperlib.rl import train as training
from paperlib.rl import update as updating
from paperlib.tasks.data import problem_count

CELLS = [(paper, method) for paper, methods in METHODS.items() for method in methods]
ALLOWED = {  # what a profile may change
    "model", "dataset", "learning_rate", "prompts_per_step", "num_generations", "max_steps",
    "max_prompt_length", "max_completion_length", "mini_batches", "warmup_steps", "save_steps",
    "precision", "gradient_checkpointing", "micro_batch_tokens", "profile", "seed", "terms",
}  # fmt: skip
# counted in tokens, steps or problems, or a name of a model
FOLLOWS = {"max_length", "buffer", "last_n", "encoder", "max_queries", "explore_warmup", "window"}


def plain(value):
    """Settings of a term without what follows a profile in proportion."""
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items() if k not in FOLLOWS}
    return value


@pytest.mark.parametrize(("paper", "method"), [c for c in CELLS if c[1] != "Base"])
@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("profile", ["smoke", "tiny", "laptop"])
def test_a_profile_keeps_the_method(paper, method, preset, profile):
    full, small = (recipe(paper, method, p, 0, preset) for p in ("paper", profile))
    for field in fields(full):
        if field.name not in ALLOWED:
            assert getattr(full, field.name) == getattr(small, field.name), field.name
    assert [plain(t) for t in full.to_dict()["terms"]] == [
        plain(t) for t in small.to_dict()["terms"]
    ]
    assert (full.mini_batches == 1) == (small.mini_batches == 1)


def test_a_small_run_exercises_its_method():
    for profile, (paper, method) in itertools.product(("tiny", "laptop"), CELLS):
        config = recipe(paper, method, profile, 0)
        if method == "Base":
            assert config.max_steps == 0
            continue
        assert config.max_steps == 48
        assert 48 * config.prompts_per_step >= 3 * problem_count(config.dataset)
        assert (config.mini_batches >= 2) == (paper == "meds")
        if profile == "tiny":
            assert (config.prompts_per_step, config.num_generations) == (8, 16)
        else:
            assert config.precision == "fp32"
            assert config.model == "HuggingFaceTB/SmolLM2-135M-Instruct"


def test_a_laptop_run_is_trained_validated_and_tested_on_different_problems():
    names = {eval_settings("meds", "laptop", s).task for s in ("test", "validation")}
    used = [("gsm8k-train:0-96",), *map(task_data, names)]
    assert sorted(used) == [("gsm8k-test:0-64",), ("gsm8k-train:0-96",), ("gsm8k-train:96-160",)]
    assert recipe("memory_r", "R1", "laptop", 0).dataset == "gsm8k-train:0-96"


# --- the papers' numbers ----------------------------------------------------------------------


def paper(name, method, preset="paper", model=None):
    return recipe(name, method, "paper", 0, preset, model)


QWEN, FALCON, _ = models("memory_r", "paper")
R1, AI_MO = paper("memory_r", "R1"), variants.small_data("Memory-R+ K=20", "paper", 0)
PLUS, DAPO, GRPO = paper("memory_r", "Memory-R+"), paper("meds", "DAPO"), paper("meds", "GRPO")
MEDS = {m: paper("meds", "MEDS", model=m) for m in models("meds", "paper")}
TABLE_4 = {  # of Memory-R+, and what TRL 0.14 adds
    "learning_rate": 5e-6, "lr_scheduler_type": "cosine", "adam_beta1": 0.9, "adam_beta2": 0.99,
    "weight_decay": 0.1, "max_grad_norm": 0.1, "num_generations": 16, "precision": "bf16",
    "beta": 0.04, "temperature": 0.9, "mini_batches": 1,
}  # fmt: skip
GSM8K = {
    "prompts_per_step": 16, "max_prompt_length": 256, "max_completion_length": 200,
    "max_steps": 7473 // 16, "warmup_steps": 47, "prompt": "tags",
}  # fmt: skip
SECTION_4_1 = {  # of MEDS
    "learning_rate": 1e-6, "lr_scheduler_type": "constant_with_warmup", "warmup_steps": 10,
    "weight_decay": 0.1, "max_grad_norm": 1.0, "temperature": 1.0, "top_p": 1.0,
    "prompts_per_step": 512, "num_generations": 16, "mini_batches": 512 // 16, "epsilon": 0.2,
    "max_prompt_length": 1024, "max_completion_length": 3072,
}  # fmt: skip
OF_DAPO = {"epsilon_high": 0.28, "beta": 0.0, "loss_type": "dapo", "dynamic_sampling": True}
OF_GRPO = {"epsilon_high": 0.2, "beta": 1e-3, "loss_type": "grpo", "dynamic_sampling": False}


@pytest.mark.parametrize(("config", "numbers"), [
    (R1, TABLE_4 | GSM8K), (PLUS, TABLE_4 | GSM8K),
    (paper("memory_r", "R1", model=FALCON), TABLE_4 | GSM8K),
    # Llama alone sees a worked example, which needs room
    (paper("memory_r", "Memory-R+", model=LLAMA),
     TABLE_4 | GSM8K | {"prompt": "tags-oneshot", "max_prompt_length": 384}),
    (AI_MO, TABLE_4 | {"prompts_per_step": 64, "max_prompt_length": 512, "prompt": "think",
                       "max_completion_length": 300, "max_steps": 4 * 2000 // 64,
                       "warmup_steps": round(0.1 * 4 * 2000 // 64)}),
    (DAPO, SECTION_4_1 | OF_DAPO), (GRPO, SECTION_4_1 | OF_GRPO),
    *((config, SECTION_4_1 | OF_DAPO | {"max_completion_length": tokens})
      for config, tokens in zip(MEDS.values(), (7168, 7168, 3072), strict=True)),
    (paper("meds", "GRPO", "released"), SECTION_4_1 | OF_GRPO | {
        "max_completion_length": 7168, "weight_decay": 0.01, "mini_batches": 16,
        "warmup_steps": 0}),
    (paper("meds", "MEDS", "released"), SECTION_4_1 | OF_DAPO | {"dual_clip": 10.0}),
])  # fmt: skip
def test_the_papers_numbers(config, numbers):
    assert {name: getattr(config, name) for name in numbers} == numbers


def test_the_papers_rewards():
    assert PLUS.terms[:-2] == R1.terms == paper("memory_r", "R1", model=LLAMA).terms
    settings = PLUS.terms[-1].settings
    assert (settings.k, settings.max_queries, settings.max_responses) == (1, 7473, 100)
    assert (settings.window, settings.explore_warmup) == (100, 50)
    for config, (alpha, beta) in zip(
        MEDS.values(), ((0.1, 0.2), (0.02, 0.04), (0.1, 0.2)), strict=True
    ):
        settings, overlong = config.terms[-1].settings, config.terms[1]
        assert (settings.alpha, settings.beta, settings.last_n) == (alpha, beta, 14)
        assert (overlong.max_length, overlong.buffer) == (config.max_completion_length, 512)
    assert MEDS[MATH_7B].terms[:-1] == DAPO.terms and len(GRPO.terms) == 1
    entropy = paper("meds", "GRPO w/ Entropy Adv")
    assert (entropy.entropy_alpha, entropy.entropy_kappa, entropy.terms) == (0.4, 2.0, GRPO.terms)


def test_in_proportion():
    for preset, profile, warmup, window in (
        ("paper", "tiny", 50 * 48 / 467, 100 * 48 / 467), ("paper", "laptop", 50 * 48 / 467, None),
        ("released", "tiny", 500 * 128 / 7473, 100),  # distinct queries; samples are not steps
    ):
        settings = recipe("memory_r", "Memory-R+", profile, 0, preset).terms[-1].settings
        assert settings.explore_warmup == round(warmup)
        assert window is None or settings.window == round(window)
        encoder = "tiny" if profile == "tiny" else "sentence-transformers/all-MiniLM-L6-v2"
        queries = {"paper": {"tiny": 128, "laptop": 96}, "released": {"tiny": 171}}[preset][profile]
        assert (settings.max_queries, settings.encoder) == (queries, encoder)


# --- what the trainer makes of them -----------------------------------------------------------


class OneWeight(torch.nn.Module):
    """As much of a policy as the optimiser and the update look at."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(4))
        self.device = torch.device("cpu")

    def activation_checkpointing_enable(self, settings):
        pass

    def activation_checkpointing_disable(self):
        pass


@pytest.mark.parametrize(("config", "parts", "norm", "betas", "decay"), [
    (R1, [256], 0.1, (0.9, 0.99), 0.1), (AI_MO, [1024], 0.1, (0.9, 0.99), 0.1),
    # mini-batch 16: prompts, so 16 x 16 rollouts, 32 updates of 512 prompts
    (MEDS[MATH_7B], [256] * 32, 1.0, (0.9, 0.999), 0.1),
    (paper("meds", "GRPO", "released"), [512] * 16, 1.0, (0.9, 0.999), 0.01),
])  # fmt: skip
def test_the_trainer_gets_the_papers_numbers(config, parts, norm, betas, decay, monkeypatch):
    model = OneWeight()
    optimizer = training.make_optimizer(config, model)
    (group,) = optimizer.param_groups
    assert (group["lr"], group["betas"], group["weight_decay"]) == (
        config.learning_rate, betas, decay
    )

    seen, norms = [], []

    def backward(config, model, reference, batch, advantages, rows):
        seen.append(len(rows))
        model.weight.grad = torch.full((4,), 100.0)
        return 0.0, {"ratio_max": 1.0, "tokens": 1}

    monkeypatch.setattr(updating, "_backward", backward)
    monkeypatch.setattr(updating, "_cut", lambda *_: [])
    monkeypatch.setattr(optimizer, "step", lambda: norms.append(float(model.weight.grad.norm())))
    rows = config.prompts_per_step * 16
    batch = collecting.Batch(None, [[1]] * rows, [[1]] * rows, [torch.zeros(1)] * rows)
    stats = updating.update(config, model, None, optimizer, batch, torch.zeros(rows))
    assert seen == parts and stats["updates"] == len(parts)
    assert np.allclose(norms, norm, rtol=1e-4)


def test_schedules_count_generation_steps():
    def factors(config):
        return [training.rate_factor(config, 1 + step) for step in range(config.max_steps)]

    ours = factors(R1)
    assert ours.index(1.0) == 47 == round(0.1 * 467) and ours[-1] < 1e-4  # one update a step
    assert factors(DAPO)[:12] == pytest.approx([i / 10 for i in range(11)] + [1.0])
    assert factors(DAPO)[-1] == 1.0


def test_names_and_hashes():
    names = {
        recipe(p, m, "tiny", s, preset).name
        for p, m in CELLS if m != "Base" for s in (0, 1) for preset in PRESETS
    }  # fmt: skip
    # GRPO variants and Base aside, every preset is another config
    assert len(names) == len({n.rsplit("-", 1)[1] for n in names})
    assert recipe("meds", "DAPO", "tiny", 0).hash == recipe("meds", "DAPO", "tiny", 0).hash
    assert recipe("meds", "Base", "tiny", 5, "released") == recipe("meds", "Base", "tiny", 0)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("med", "DAPO", "tiny", 0), "unknown paper 'med'; valid: memory_r, meds"),
        (("meds", "R1", "tiny", 0), "unknown method of meds 'R1'; valid: Base, GRPO, DAPO"),
        (("meds", "DAPO", "huge", 0), "unknown profile 'huge'; valid: smoke, tiny, laptop"),
        (("meds", "DAPO", "tiny", 0, "relased"), "unknown preset 'relased'; valid: paper"),
        (("meds", "DAPO", "laptop", 0, "paper", "tiny"),
         "unknown model of meds in profile laptop 'tiny'; valid: HuggingFaceTB/SmolLM2-135M"),
        (("memory_r", "R1", "paper", 0, "paper", "Qwen/Qwen3-8B"),
         "unknown model of memory_r in profile paper 'Qwen/Qwen3-8B'; valid: Qwen/Qwen2.5-0.5B"),
    ],
)
def test_unknown_names(arguments, says):
    with pytest.raises(UserError) as error:
        recipe(*arguments)
    assert says in str(error.value)


def test_evaluations_of_the_papers():
    memory_r, meds = (eval_settings(name, "paper", "test") for name in ("memory_r", "meds"))
    assert memory_r.task == "paperlib_gsm8k+paperlib_math500+paperlib_aime24"
    assert (memory_r.grading, memory_r.temperature, memory_r.prompt) == ("extractive", 1.0, "tags")
    assert eval_settings("memory_r", "paper", "test", model=LLAMA).prompt == "tags"  # 0-shot
    greedy = eval_settings("memory_r", "paper", "test", greedy=True)
    assert (greedy.samples, greedy.temperature, greedy.task) == (1, 0.0, memory_r.task)
    assert task_data(meds.task) == ("aime24", "amc23", "math500", "minerva", "olympiadbench")
    assert (meds.grading, meds.prompt, meds.samples, meds.seed) == ("math", "boxed", 128, 0)
    for model, config in MEDS.items():
        of_model = eval_settings("meds", "paper", "test", model=model)
        assert of_model.max_completion_length == config.max_completion_length
    tiny = eval_settings("meds", "tiny", "test")
    assert (tiny.samples, tiny.temperature, tiny.top_p) == (16, 1.0, 1.0)
    assert eval_settings("memory_r", "laptop", "test").grading == "extractive"
    small = variants.small_data_settings("paper", "validation")
    assert (small.task, small.prompt) == ("paperlib_numinamath_validation", "think")
    assert variants.small_data_settings("paper", "test").task == memory_r.task
    assert variants.small_data_settings("tiny", "test") == eval_settings("memory_r", "tiny", "test")


def test_headings_belong_to_task_files_of_the_same_data():
    found = {
        path.stem: re.search(r"dataset: (\S+)", path.read_text())
        for path in TASKS.glob("paperlib_*.yaml") if not path.stem.endswith("_t1")
    }  # fmt: skip
    assert {name: match[1] for name, match in found.items() if match} == {
        name: data for name, (_, data) in BENCHMARKS.items()
    }


def test_models_of_a_profile():
    assert models("meds", "tiny") == ("tiny",)
    assert len(models("meds", "paper")) == len(models("memory_r", "paper")) == 3
    assert models("meds", "paper", f"{MATH_7B}, Qwen/Qwen3-8B") == (MATH_7B, "Qwen/Qwen3-8B")
    assert models("meds", "laptop", ["smollm2-gguf"]) == ("smollm2-gguf",)
    assert len({config.hash for config in MEDS.values()}) == 3
    with pytest.raises(UserError, match="unknown model of meds in profile paper 'tiny'"):
        models("meds", "paper", "tiny")
