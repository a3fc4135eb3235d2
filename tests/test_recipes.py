"""Recipes: what a profile may change and what it never changes; every setting of the papers."""

from dataclasses import fields

import pytest

from paperlib.errors import UserError
from paperlib.experiments.recipes import METHODS, PRESETS, PROBLEMS, eval_settings, recipe
from paperlib.tasks.data import load_problems

NEVER = {  # a profile never changes these
    "loss_type", "epsilon", "epsilon_high", "dual_clip", "beta", "scale_rewards",
    "scale_only_mixed_groups", "advantage_epsilon", "entropy_alpha", "entropy_kappa",
    "mask_truncated_completions",
    "dynamic_sampling", "max_generation_batches", "max_empty_steps", "temperature", "top_p",
    "preset", "prompt", "lr_scheduler_type", "adam_beta1", "adam_beta2", "adam_epsilon",
    "weight_decay", "max_grad_norm", "paper", "method",
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
@pytest.mark.parametrize("profile", ["smoke", "tiny"])
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
    assert all(PROBLEMS[name] == len(load_problems(name)) for name in ("tiny-train", "tiny-smoke"))


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
        (("meds", "DAPO", "huge", 0), "unknown profile 'huge'; valid: smoke, tiny, paper"),
        (("meds", "DAPO", "tiny", 0, "relased"), "unknown preset 'relased'; valid: paper"),
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
    with pytest.raises(UserError, match="no evaluation tasks yet"):
        eval_settings("meds", "paper", "test")
