"""Recipes: what a profile may change and what it never changes; every setting of the papers."""

import re
from dataclasses import fields

import numpy as np
import pytest
import torch

from paperlib.errors import UserError
from paperlib.evaluation import lm_tasks
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
from paperlib.tasks.data import Problem, load_problems, problem_count

NEVER = {  # a profile never changes these
    "loss_type", "epsilon", "epsilon_high", "dual_clip", "beta", "scale_rewards",
    "scale_only_mixed_groups", "advantage_epsilon", "entropy_alpha", "entropy_kappa",
    "mask_truncated_completions",
    "dynamic_sampling", "max_generation_batches", "max_empty_steps", "temperature", "top_p",
    "preset", "prompt", "lr_scheduler_type", "adam_beta1", "adam_beta2", "adam_epsilon",
    "weight_decay", "max_grad_norm", "max_skipped_steps", "paper", "method", "engine",
}  # fmt: skip
CELLS = [(paper, method) for paper, methods in METHODS.items() for method in methods]
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
    for name in NEVER:
        assert getattr(full, name) == getattr(small, name), name
    assert [plain(t) for t in full.to_dict()["terms"]] == [
        plain(t) for t in small.to_dict()["terms"]
    ]
    known = NEVER | {"profile", "seed", "terms"}
    allowed = {
        "model", "dataset", "learning_rate", "prompts_per_step", "num_generations", "max_steps",
        "max_prompt_length", "max_completion_length", "mini_batches", "warmup_steps", "save_steps",
        "precision", "gradient_checkpointing", "micro_batch_tokens",
    }  # fmt: skip
    assert {f.name for f in fields(full)} == known | allowed
    assert (full.mini_batches == 1) == (small.mini_batches == 1)


def test_a_tiny_run_exercises_its_method():
    for paper, method in CELLS:
        config = recipe(paper, method, "tiny", 0)
        if method == "Base":
            assert config.max_steps == 0
            continue
        problems = load_problems(config.dataset)
        assert config.max_steps >= 45
        assert config.max_steps * config.prompts_per_step >= 3 * len(problems)
        assert (config.prompts_per_step, config.num_generations) == (8, 16)
        assert (config.mini_batches >= 2) == (paper == "meds")


def test_a_laptop_run_exercises_its_method():
    for paper, method in CELLS:
        config = recipe(paper, method, "laptop", 0)
        assert (config.model, config.precision) == ("HuggingFaceTB/SmolLM2-135M-Instruct", "fp32")
        assert config.max_steps == (0 if method == "Base" else 48)
        assert 48 * config.prompts_per_step >= 3 * problem_count(config.dataset)
        assert (config.mini_batches >= 2) == (paper == "meds")
    plus = recipe("memory_r", "Memory-R+", "laptop", 0).terms[-1].settings
    assert plus.encoder == "sentence-transformers/all-MiniLM-L6-v2"  # the paper's own
    assert (plus.max_queries, plus.explore_warmup) == (96, round(50 * 48 / 467))
    assert recipe("meds", "MEDS", "laptop", 0, model="smollm2-gguf").model == "smollm2-gguf"
    # trained, validated and tested on different problems
    names = {eval_settings("meds", "laptop", s).task for s in ("test", "validation")}
    used = [("gsm8k-train:0-96",), *map(task_data, names)]
    assert sorted(used) == [("gsm8k-test:0-64",), ("gsm8k-train:0-96",), ("gsm8k-train:96-160",)]


QWEN, FALCON, _ = models("memory_r", "paper")
# Table 4: learning rate, Adam betas, weight decay, gradient norm, G; prompts a step, max prompt and
# completion tokens, epochs x problems
TABLE_4 = {
    "GSM8K": (recipe("memory_r", "R1", "paper", 0), 16, 256, 200, 1 * 7473),
    "Falcon3": (recipe("memory_r", "R1", "paper", 0, model=FALCON), 16, 256, 200, 1 * 7473),
    "AI-MO": (variants.small_data("Memory-R+ K=20", "paper", 0), 64, 512, 300, 4 * 2000),
}


@pytest.mark.parametrize("column", TABLE_4)
def test_table_4_in_the_config(column):
    config, prompts, prompt_tokens, tokens, visits = TABLE_4[column]
    assert (config.learning_rate, config.lr_scheduler_type) == (5e-6, "cosine")
    assert (config.adam_beta1, config.adam_beta2, config.weight_decay) == (0.9, 0.99, 0.1)
    assert (config.max_grad_norm, config.num_generations, config.precision) == (0.1, 16, "bf16")
    assert config.prompts_per_step == prompts  # 2 x 8, 1 x 16, 4 x 16
    assert (config.max_prompt_length, config.max_completion_length) == (prompt_tokens, tokens)
    assert config.max_steps == visits // prompts  # epochs, in generation steps
    assert config.warmup_steps == round(0.1 * config.max_steps)


def test_llama_alone_sees_a_worked_example_and_only_in_training():
    llama = recipe("memory_r", "Memory-R+", "paper", 0, model=LLAMA)
    assert (llama.prompt, llama.max_prompt_length) == ("tags-oneshot", 384)
    assert eval_settings("memory_r", "paper", "test", model=LLAMA).prompt == "tags"
    for model in (QWEN, FALCON):
        other = recipe("memory_r", "Memory-R+", "paper", 0, model=model)
        assert (other.prompt, other.max_prompt_length) == ("tags", 256)
        assert other.terms == llama.terms


@pytest.mark.parametrize(
    ("model", "alpha", "beta", "tokens"),
    [("Qwen/Qwen3-1.7B", 0.1, 0.2, 7168), ("Qwen/Qwen3-8B", 0.02, 0.04, 7168),
     (MATH_7B, 0.1, 0.2, 3072)],
)  # fmt: skip
def test_meds_by_model(model, alpha, beta, tokens):
    meds = recipe("meds", "MEDS", "paper", 0, model=model)
    settings = meds.terms[-1].settings
    assert (settings.alpha, settings.beta, settings.last_n) == (alpha, beta, 14)
    assert meds.max_completion_length == tokens == meds.terms[1].max_length
    assert (meds.max_prompt_length, meds.terms[1].buffer) == (1024, 512)
    assert (meds.learning_rate, meds.weight_decay, meds.max_grad_norm) == (1e-6, 0.1, 1.0)
    assert (meds.warmup_steps, meds.temperature, meds.top_p) == (10, 1.0, 1.0)
    assert (meds.prompts_per_step, meds.num_generations) == (512, 16)
    released = recipe("meds", "GRPO", "paper", 0, "released", model)
    assert (released.max_completion_length, released.weight_decay) == (7168, 0.01)
    test = eval_settings("meds", "paper", "test", model=model)
    assert (test.samples, test.seed, test.max_completion_length) == (128, 0, tokens)


class Stop(Exception):
    pass


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


# recipe -> prompts sampled, rollouts and number of updates, gradient norm, betas, decay
ENGINES = [
    (TABLE_4["GSM8K"][0], 16, [256], 0.1, (0.9, 0.99), 0.1),
    (TABLE_4["AI-MO"][0], 64, [1024], 0.1, (0.9, 0.99), 0.1),
    # mini-batch 16: prompts, so 16 x 16 rollouts, 32 updates of 512 prompts
    (recipe("meds", "MEDS", "paper", 0), 512, [256] * 32, 1.0, (0.9, 0.999), 0.1),
    (recipe("meds", "GRPO", "paper", 0, "released"), 512, [512] * 16, 1.0, (0.9, 0.999), 0.01),
]


@pytest.mark.parametrize(("config", "prompts", "parts", "norm", "betas", "decay"), ENGINES)
def test_the_trainer_gets_the_papers_numbers(
    config, prompts, parts, norm, betas, decay, monkeypatch
):
    model = OneWeight()
    optimizer = training.make_optimizer(config, model)
    (group,) = optimizer.param_groups
    assert (group["lr"], group["betas"], group["weight_decay"]) == (
        config.learning_rate, betas, decay
    )

    def sample_groups(model, prompt_ids, generations, **settings):
        assert (len(prompt_ids), generations) == (prompts, 16)
        assert settings["max_completion_length"] == config.max_completion_length
        assert (settings["temperature"], settings["top_p"]) == (config.temperature, 1.0)
        raise Stop

    monkeypatch.setattr(collecting, "sample_groups", sample_groups)
    monkeypatch.setattr(collecting, "end_tokens", lambda *_: {0})
    monkeypatch.setattr(collecting, "pad_token", lambda *_: 0)
    problems = [Problem(str(i), "?", "1") for i in range(600)]
    stream = collecting.PromptStream(problems, [[1]] * 600, 0)
    with pytest.raises(Stop):
        collecting.collect(config, 1, stream, model, None)

    seen, norms = [], []

    def backward(config, model, reference, batch, advantages, rows):
        seen.append(len(rows))
        model.weight.grad = torch.full((4,), 100.0)
        return 0.0, {"ratio_max": 1.0, "tokens": 1}

    monkeypatch.setattr(updating, "_backward", backward)
    monkeypatch.setattr(updating, "_cut", lambda *_: [])
    monkeypatch.setattr(optimizer, "step", lambda: norms.append(float(model.weight.grad.norm())))
    rows = prompts * 16
    batch = collecting.Batch(None, [[1]] * rows, [[1]] * rows, [torch.zeros(1)] * rows)
    stats = updating.update(config, model, None, optimizer, batch, torch.zeros(rows))
    assert seen == parts and stats["updates"] == len(parts)
    assert np.allclose(norms, norm, rtol=1e-4)


def test_schedules_count_generation_steps():
    r1, dapo = TABLE_4["GSM8K"][0], recipe("meds", "DAPO", "paper", 0)

    def factors(config):
        return [training.rate_factor(config, 1 + step) for step in range(config.max_steps)]

    ours = factors(r1)
    assert ours.index(1.0) == 47 == round(0.1 * 467) and ours[-1] < 1e-4  # one update a step
    assert factors(dapo)[:12] == pytest.approx([i / 10 for i in range(11)] + [1.0])
    assert factors(dapo)[-1] == 1.0


def test_the_papers_numbers():
    r1 = recipe("memory_r", "R1", "paper", 0)
    assert (r1.learning_rate, r1.num_generations, r1.beta, r1.temperature) == (5e-6, 16, 0.04, 0.9)
    assert r1.warmup_steps == round(0.1 * r1.max_steps)
    assert r1.max_steps == -(-7473 // r1.prompts_per_step) - 1  # one epoch, its last part dropped
    dapo, grpo = recipe("meds", "DAPO", "paper", 0), recipe("meds", "GRPO", "paper", 0)
    assert (dapo.epsilon, dapo.epsilon_high, dapo.beta, dapo.loss_type) == (0.2, 0.28, 0.0, "dapo")
    assert (grpo.epsilon_high, grpo.beta, grpo.loss_type) == (0.2, 1e-3, "grpo")
    assert dapo.prompts_per_step // dapo.mini_batches == 16
    assert dapo.dynamic_sampling and not grpo.dynamic_sampling
    meds = recipe("meds", "MEDS", "paper", 0)
    assert meds.terms[:-1] == dapo.terms
    assert (meds.terms[-1].settings.alpha, meds.terms[-1].settings.beta) == (0.1, 0.2)
    assert meds.terms[-1].settings.last_n == 14
    plus = recipe("memory_r", "Memory-R+", "paper", 0)
    assert plus.terms[:-2] == r1.terms
    settings = plus.terms[-1].settings
    assert (settings.k, settings.max_queries, settings.max_responses) == (1, 7473, 100)
    assert (settings.window, settings.explore_warmup) == (100, 50)


def test_in_proportion():
    settings = recipe("memory_r", "Memory-R+", "tiny", 0).terms[-1].settings
    assert (settings.max_queries, settings.encoder) == (128, "tiny")
    assert settings.explore_warmup == round(50 * 48 / 467)
    assert settings.window == round(100 * 48 / 467)
    released = recipe("memory_r", "Memory-R+", "tiny", 0, "released").terms[-1].settings
    assert released.window == 100  # samples are not steps
    assert released.explore_warmup == round(500 * 128 / 7473)  # distinct queries


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


def test_eval_settings():
    test = eval_settings("meds", "tiny", "test")
    assert (test.samples, test.temperature, test.top_p) == (16, 1.0, 1.0)
    assert eval_settings("memory_r", "tiny", "test", greedy=True).samples == 1
    assert eval_settings("memory_r", "tiny", "test").prompt == "tags"


def test_evaluations_of_the_papers():
    memory_r = eval_settings("memory_r", "paper", "test")
    assert memory_r.task == "paperlib_gsm8k+paperlib_math500+paperlib_aime24"
    assert (memory_r.grading, memory_r.temperature) == ("extractive", 1.0)
    greedy = eval_settings("memory_r", "paper", "test", greedy=True)
    assert (greedy.samples, greedy.temperature, greedy.task) == (1, 0.0, memory_r.task)
    meds = eval_settings("meds", "paper", "test")
    assert task_data(meds.task) == ("aime24", "amc23", "math500", "minerva", "olympiadbench")
    assert sum(map(problem_count, task_data(meds.task))) == 30 + 40 + 500 + 272 + 675
    assert (meds.grading, meds.prompt) == ("math", "boxed")
    assert eval_settings("memory_r", "laptop", "test").grading == "extractive"
    small = variants.small_data_settings("paper", "validation")
    assert (small.task, small.prompt) == ("paperlib_numinamath_validation", "think")
    assert variants.small_data_settings("paper", "test").task == memory_r.task
    assert variants.small_data_settings("tiny", "test") == eval_settings("memory_r", "tiny", "test")


def test_headings_belong_to_task_files_of_the_same_data():
    found = {
        path.stem: re.search(r"dataset: (\S+)", path.read_text())
        for path in lm_tasks.TASKS.glob("paperlib_*.yaml") if not path.stem.endswith("_t1")
    }  # fmt: skip
    assert {name: match[1] for name, match in found.items() if match} == {
        name: data for name, (_, data) in BENCHMARKS.items()
    }


def test_models_of_a_profile():
    assert models("meds", "tiny") == ("tiny",)
    assert len(models("meds", "paper")) == len(models("memory_r", "paper")) == 3
    assert models("meds", "paper", f"{MATH_7B}, Qwen/Qwen3-8B") == (MATH_7B, "Qwen/Qwen3-8B")
    assert models("meds", "laptop", ["smollm2-gguf"]) == ("smollm2-gguf",)
    assert len({recipe("meds", "DAPO", "paper", 0, model=m).hash
                for m in models("meds", "paper")}) == 3  # fmt: skip
    with pytest.raises(UserError, match="unknown model of meds in profile paper 'tiny'"):
        models("meds", "paper", "tiny")
