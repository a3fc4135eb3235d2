"""Recipes and variants: the papers' numbers, what a profile may change, names of stored runs."""

import itertools
from dataclasses import fields, replace
from pathlib import Path

import pytest

from paperlib.errors import UserError
from paperlib.evaluation.settings import task_names
from paperlib.experiments import variants
from paperlib.experiments.benchmarks import BENCHMARKS, task_data
from paperlib.experiments.recipes import (
    LLAMA,
    MATH_7B,
    METHODS,
    PRESETS,
    PROFILES,
    eval_settings,
    models,
    recipe,
)
from paperlib.files import read_json
from paperlib.methods.memory_r import Exploit, Explore
from paperlib.rl.train import rate_factor
from paperlib.tasks.data import load_problems, problem_count

CELLS = [(paper, method) for paper, methods in METHODS.items() for method in methods]
ALLOWED = {  # what a profile may change
    "model", "dataset", "learning_rate", "prompts_per_step", "num_generations", "max_steps",
    "max_prompt_length", "max_completion_length", "mini_batches", "warmup_steps", "save_steps",
    "precision", "gradient_checkpointing", "micro_batch_tokens", "profile", "seed", "terms",
}  # fmt: skip
# counted in tokens, steps or problems, or a name of a model
FOLLOWS = {"max_length", "buffer", "last_n", "encoder", "max_queries", "explore_warmup", "window"}


def test_every_run_and_evaluation_keeps_its_name():
    """A name is a hash of all values: one that changes here orphans the runs that are stored."""
    found = {}
    for profile, preset in itertools.product(PROFILES, PRESETS):
        for paper, method in CELLS:
            for model in models(paper, profile):
                key = f"{paper} | {method} | {profile} | {preset} | {model}"
                found[key] = recipe(paper, method, profile, 0, preset, model).name
        for method in variants.SMALL_DATA:
            config = variants.small_data(method, profile, 0, preset)
            found[f"little data | {method} | {profile} | {preset}"] = config.name
        for row in variants.FEATURES:
            config = variants.feature_variant(row, profile, 0, preset)
            found[f"feature | {row} | {profile} | {preset}"] = config.name
    for paper, profile, split in itertools.product(METHODS, PROFILES, ("test", "validation")):
        for greedy in (False, True):
            settings = eval_settings(paper, profile, split, greedy=greedy)
            found[f"{paper} | {profile} | {split} | greedy {greedy}"] = settings.name
    found[variants.AUTHORS] = variants.authors_policy().name
    assert found == read_json(Path(__file__).with_name("names.json"))


# --- what a profile changes -------------------------------------------------------------------


def plain(value):
    """Settings of a term without what follows a profile in proportion."""
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items() if k not in FOLLOWS}
    return value


@pytest.mark.parametrize(("paper", "method"), [c for c in CELLS if c[1] != "Base"])
@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("profile", ["smoke", "tiny", "laptop"])
def test_a_profile_keeps_the_method_and_exercises_it(paper, method, preset, profile):
    full, small = (recipe(paper, method, p, 0, preset) for p in ("paper", profile))
    for field in fields(full):
        if field.name not in ALLOWED:
            assert getattr(full, field.name) == getattr(small, field.name), field.name
    of_full, of_small = (list(map(plain, c.to_dict()["terms"])) for c in (full, small))
    assert of_full == of_small
    assert (small.mini_batches >= 2) == (full.mini_batches >= 2) == (paper == "meds")
    assert small.max_steps * small.prompts_per_step >= 3 * problem_count(small.dataset)


def test_a_laptop_run_is_trained_validated_and_tested_on_different_problems():
    for paper in METHODS:
        splits = [eval_settings(paper, "laptop", split).task for split in ("test", "validation")]
        assert list(map(task_data, splits)) == [("gsm8k-test:0-64",), ("gsm8k-train:96-160",)]
        assert recipe(paper, "Base", "laptop", 0).dataset == "gsm8k-train:0-96"


def test_what_is_counted_in_steps_or_problems_follows_in_proportion():
    paper = recipe("memory_r", "Memory-R+", "tiny", 0).terms[-1].settings
    assert (paper.explore_warmup, paper.window, paper.max_queries, paper.encoder) == (
        round(50 * 48 / 467), round(100 * 48 / 467), 128, "tiny"
    )  # fmt: skip
    # warm-up in distinct queries; a window of samples, which are not steps
    released = recipe("memory_r", "Memory-R+", "tiny", 0, "released").terms[-1].settings
    assert (released.explore_warmup, released.window) == (round(500 * 128 / 7473), 100)


# --- the papers' numbers ----------------------------------------------------------------------


def paper(name, method, preset="paper", model=None):
    return recipe(name, method, "paper", 0, preset, model)


R1, AI_MO = paper("memory_r", "R1"), variants.small_data("Memory-R+ K=20", "paper", 0)
PLUS, DAPO, GRPO = paper("memory_r", "Memory-R+"), paper("meds", "DAPO"), paper("meds", "GRPO")
MEDS = {m: paper("meds", "MEDS", model=m) for m in models("meds", "paper")}


def test_methods_differ_in_their_rewards_as_their_papers_say():
    assert PLUS.terms[:-2] == R1.terms == paper("memory_r", "R1", model=LLAMA).terms
    assert MEDS[MATH_7B].terms[:-1] == DAPO.terms and len(GRPO.terms) == 1
    for config in MEDS.values():  # Sec. 4.1, by model
        overlong, penalty = config.terms[1], config.terms[-1].settings
        assert (overlong.max_length, overlong.buffer) == (config.max_completion_length, 512)
        alpha = 0.02 if config.model == "Qwen/Qwen3-8B" else 0.1
        assert (penalty.alpha, penalty.beta, penalty.last_n) == (alpha, 2 * alpha, 14)
    assert AI_MO.terms[-1].settings.k == 20 and AI_MO.prompt == "think"


def test_schedules_count_generation_steps():
    def factors(config):
        return [rate_factor(config, 1 + step) for step in range(config.max_steps)]

    ours = factors(R1)
    assert ours.index(1.0) == 47 == round(0.1 * 467) and ours[-1] < 1e-4  # one update a step
    assert factors(DAPO)[:12] == pytest.approx([i / 10 for i in range(11)] + [1.0])
    assert factors(DAPO)[-1] == 1.0


def test_evaluations_of_the_papers():
    memory_r, meds = (eval_settings(name, "paper", "test") for name in METHODS)
    assert task_data(memory_r.task) == ("gsm8k-test", "math500", "aime24")
    assert (memory_r.grading, memory_r.temperature, memory_r.prompt) == ("extractive", 1.0, "tags")
    assert eval_settings("memory_r", "paper", "test", model=LLAMA).prompt == "tags"  # 0-shot
    assert task_data(meds.task) == ("aime24", "amc23", "math500", "minerva", "olympiadbench")
    assert (meds.grading, meds.prompt, meds.samples, meds.seed) == ("math", "boxed", 128, 0)
    for model, config in MEDS.items():
        of_model = eval_settings("meds", "paper", "test", model=model)
        assert of_model.max_completion_length == config.max_completion_length
    small = variants.small_data_settings("paper", "validation")
    assert (small.task, small.prompt) == ("paperlib_numinamath_validation", "think")
    assert variants.small_data_settings("tiny", "test") == eval_settings("memory_r", "tiny", "test")


# --- rows beside the main ones ----------------------------------------------------------------


def differences(a, b):
    a, b = a.to_dict(), b.to_dict()
    return {key for key in a.keys() | b.keys() if a.get(key) != b.get(key)}


@pytest.mark.parametrize("profile", PROFILES)
def test_small_data_rows_differ_in_their_memory_only(profile):
    r1, *others = (variants.small_data(method, profile, 0) for method in variants.SMALL_DATA)
    assert [term.name for term in r1.terms] == ["correctness", "xmlcount", "reasoning_steps"]
    for config in others:
        assert differences(r1, config) == {"method", "terms"}
        assert config.terms[:3] == r1.terms
    assert others[0].terms[3].max_length == r1.max_completion_length  # Cosine
    memories = [[t.settings for t in c.terms if isinstance(t, Exploit | Explore)]
                for c in others[1:]]  # fmt: skip
    assert [[s.k for s in pair] for pair in memories] == [[k, k] for k in variants.K_VALUES]
    assert {s.max_queries for s in sum(memories, [])} == {problem_count(r1.dataset)}


def test_tiny_small_is_half_of_the_training_problems_with_all_levels():
    small, full = load_problems("tiny-small"), load_problems("tiny-train")
    assert len(small) == problem_count("tiny-small") == len(full) / 2
    assert set(small) < set(full)
    assert [sum(p.level == level for p in small) for level in (1, 2, 3, 4)] == [16] * 4


def test_feature_variants_of_table_2():
    meds = recipe("meds", "MEDS", "tiny", 1)
    assert variants.feature_variant("14", "tiny", 1) == meds
    assert variants.feature_variant("DAPO", "tiny", 1) == recipe("meds", "DAPO", "tiny", 1)
    for name, values in {
        "Single cluster": ("single", None, False), "28-diff": ("hdbscan", 8, True),
        "14-diff": ("hdbscan", None, True), "28": ("hdbscan", 8, False),
    }.items():  # fmt: skip
        config = variants.feature_variant(name, "tiny", 1)
        assert differences(meds, config) == {"method", "terms"}
        settings = variants.cluster_term(config).settings
        assert (settings.method, settings.last_n, settings.diff) == values
    with pytest.raises(UserError, match="has no cluster penalty; take a MEDS run"):
        variants.cluster_term(R1)


# --- what can be asked for --------------------------------------------------------------------


@pytest.mark.parametrize(("call", "arguments", "says"), [
    (recipe, ("med", "DAPO", "tiny", 0), "paper 'med'; valid: memory_r, meds"),
    (recipe, ("meds", "R1", "tiny", 0), "method of meds 'R1'; valid: Base, GRPO, DAPO"),
    (recipe, ("meds", "DAPO", "huge", 0), "profile 'huge'; valid: smoke, tiny, laptop"),
    (recipe, ("meds", "DAPO", "tiny", 0, "relased"), "preset 'relased'; valid: paper"),
    (recipe, ("meds", "DAPO", "laptop", 0, "paper", "tiny"),
     "model of meds in profile laptop 'tiny'; valid: HuggingFaceTB/SmolLM2-135M"),
    (models, ("memory_r", "paper", "tiny"),
     "model of memory_r in profile paper 'tiny'; valid: Qwen/Qwen2.5-0.5B"),
    (eval_settings, ("meds", "tiny", "train"), "split 'train'; valid: test, validation"),
    (variants.small_data, ("x", "tiny", 0), "method 'x'; valid: R1, Cosine"),
    (variants.feature_variant, ("x", "tiny", 0), "row of Table 2 'x'; valid: DAPO, Single"),
])  # fmt: skip
def test_unknown_names(call, arguments, says):
    with pytest.raises(UserError) as error:
        call(*arguments)
    assert f"unknown {says}" in str(error.value)


def test_models_of_a_profile():
    assert models("meds", "tiny") == ("tiny",)
    assert len(models("meds", "paper")) == len(models("memory_r", "paper")) == 3
    assert models("meds", "paper", f"{MATH_7B}, Qwen/Qwen3-8B") == (MATH_7B, "Qwen/Qwen3-8B")
    assert models("meds", "laptop", ["smollm2-gguf"]) == ("smollm2-gguf",)
    # the same base model whatever is asked for
    assert recipe("meds", "Base", "tiny", 5, "released") == recipe("meds", "Base", "tiny", 0)


def test_every_benchmark_has_a_heading():
    assert [*sorted(BENCHMARKS)] == [n for n in task_names() if n.startswith("paperlib_")]


def test_worlds_change_the_condition_and_not_the_method():
    """Base is the world's own model; smoke keeps its size; nothing else may differ."""
    for paper, method in (("memory_r", "Memory-R+"), ("meds", "MEDS"), ("meds", "Base")):
        tiny, smoke = (recipe(paper, method, profile, 0) for profile in ("tiny", "smoke"))
        assert variants.in_world(tiny, "tuned") == tiny
        weak = variants.in_world(tiny, "weak")
        assert weak == replace(tiny, model="tiny-weak")
        assert variants.in_world(smoke, "few") == smoke
        few = variants.in_world(tiny, "few")
        if method == "Base":
            assert few == tiny
        else:
            visits = few.max_steps * few.prompts_per_step / problem_count(few.dataset)
            assert visits == 48 and few.terms == tiny.terms and few.hash != tiny.hash
    with pytest.raises(UserError, match="valid: tuned, weak, few"):
        variants.in_world(tiny, "hard")
