"""Which settings each method of each paper is run with; recipes.toml has the numbers' sources.

``recipe(paper, method, profile, seed, preset, model)`` starts from the paper's own settings and
lets the profile change what a profile may change: model, data, learning rate, batch and sequence
sizes, and what is counted in steps or tokens. Reward terms, loss, clips, KL and preset never
change.
"""

import tomllib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from paperlib.errors import check_choice
from paperlib.evaluation.settings import EvalSettings
from paperlib.experiments.benchmarks import TASKS
from paperlib.methods import baselines as b
from paperlib.methods.meds import ClusterPenalty, Meds
from paperlib.methods.memory_r import Exploit, Explore, MemoryR
from paperlib.rl.config import ENGINES, RunConfig
from paperlib.tasks.data import problem_count

_TEXT = Path(__file__).with_suffix(".toml").read_text("utf-8")
SETTINGS: dict[str, dict[str, dict[str, Any]]] = tomllib.loads(_TEXT)
METHODS: dict[str, tuple[str, ...]] = {
    "memory_r": ("Base", "R1", "Cosine", "Memory-R", "Memory-R+"),
    "meds": ("Base", "GRPO", "DAPO", "GRPO w/ Entropy Adv", "MEDS"),
}
PROFILES = ("smoke", "tiny", "laptop", "paper")
PRESETS = ("paper", "released")
LLAMA, QWEN3_8B, MATH_7B = (
    "meta-llama/Llama-3.2-1B-Instruct", "Qwen/Qwen3-8B", "Qwen/Qwen2.5-Math-7B",
)  # fmt: skip
PAPER_MODELS = {
    # Table 5
    "memory_r": ("Qwen/Qwen2.5-0.5B-Instruct", "tiiuae/Falcon3-1B-Instruct", LLAMA),
    "meds": ("Qwen/Qwen3-1.7B", QWEN3_8B, MATH_7B),  # Sec. 4.1, Table 1
}
# The one that further tables and figures use, and whose settings the small profiles scale down.
MAIN_MODEL = {"memory_r": PAPER_MODELS["memory_r"][0], "meds": MATH_7B}  # Table 2 of both papers
# How `paper` is launched (ours): file in paperlib/rl/launch, further flags of the command, GPUs
LAUNCH = {
    "memory_r": ("one_gpu.yaml", "", 1),
    "meds": ("eight_gpus_vllm.yaml", " --vllm", 8),  # 512 x 16 rollouts of up to 7,168 tokens
}
# The second is the same model from a file of 4-bit weights, for machines without the hub. SmolLM2
# hardly ever boxes an answer, so that DAPO and MEDS find no group to learn from: the third does.
LAPTOP_MODELS = (
    "HuggingFaceTB/SmolLM2-135M-Instruct", "smollm2-gguf", "Qwen/Qwen2.5-0.5B-Instruct",
)  # fmt: skip


def models(
    paper: str, profile: str, chosen: Sequence[str] | str | None = None
) -> tuple[str, ...]:
    """The models of a paper's Table 1 in a profile, or those of them that are ``chosen``."""
    check_choice("paper", paper, METHODS)
    check_choice("profile", profile, PROFILES)
    valid = {"paper": PAPER_MODELS[paper], "laptop": LAPTOP_MODELS}.get(profile, ("tiny",))
    if chosen is None:
        return valid[:1] if profile == "laptop" else valid
    names = chosen.split(",") if isinstance(chosen, str) else chosen
    names = tuple(name.strip() for name in names)
    for name in names:
        check_choice(f"model of {paper} in profile {profile}", name, valid)
    return names


def methods(paper: str, engine: str = "ours") -> tuple[str, ...]:
    """The rows of a paper's Table 1 that an engine can train: TRL has no entropy advantage."""
    check_choice("paper", paper, METHODS)
    check_choice("engine", engine, ENGINES)
    return tuple(m for m in METHODS[paper] if engine == "ours" or m != "GRPO w/ Entropy Adv")


def recipe(
    paper: str, method: str, profile: str, seed: int, preset: str = "paper",
    model: str | None = None, engine: str = "ours",
) -> RunConfig:
    """The RunConfig of one cell of the grid.

    ``model`` is one of :func:`models`, for ``laptop`` also another of LAPTOP_MODELS; None: the
    profile's main one. ``engine``: the base model, which is not trained, is of both.
    """
    check_choice(f"method of {paper}", method, methods(paper))
    check_choice("preset", preset, PRESETS)
    check_choice("engine", engine, ENGINES)
    if model is None:
        model = MAIN_MODEL[paper] if profile == "paper" else models(paper, profile)[0]
    models(paper, profile, [model])
    if method == "Base":
        seed, preset = 0, "paper"  # the same model whatever is asked for
    of_paper = model if profile == "paper" else MAIN_MODEL[paper]
    config = (_memory_r if paper == "memory_r" else _meds)(method, preset, of_paper)
    if profile != "paper":
        config = _scaled_down(config, profile, model)
    return replace(config, seed=seed, engine=engine if config.max_steps else "ours")


def _memory_r(method: str, preset: str, model: str) -> RunConfig:
    settings = {**SETTINGS["paper"]["memory_r"], **SETTINGS["of_model"].get(model, {})}
    length = settings["max_completion_length"]
    if preset == "paper":
        correctness, cosine, memory = b.Correctness(), b.CosineLength(length), MemoryR.paper()
    else:
        correctness, cosine = b.Correctness(rule="string"), b.CosineLength.released()
        # N and L of the released code
        memory = MemoryR.released("Memory-R" if method == "Memory-R" else "Memory-R+")
    formats = (b.IntegerAnswer, b.XmlCount, b.SoftFormat, b.StrictFormat)
    rewards = (correctness, *(term(preset) for term in formats))
    terms: tuple[Any, ...] = {
        "Base": (),
        "R1": rewards,
        "Cosine": (*rewards, cosine),
        "Memory-R": (*rewards, Exploit(memory)),  # eq. 4
        "Memory-R+": (*rewards, Exploit(memory), Explore(memory)),  # eqs. 4 and 5
    }[method]
    r1 = RunConfig(
        paper="memory_r", method="R1", profile="paper", seed=0, preset=preset, model=model,
        terms=rewards, **settings,
    )
    return replace(r1, method=method, terms=terms, max_steps=r1.max_steps if terms else 0)


def _meds(method: str, preset: str, model: str) -> RunConfig:
    of_paper = SETTINGS["paper"]
    settings = {**of_paper["meds"], **SETTINGS["of_model"].get(model, {})}
    length = settings["max_completion_length"]
    dapo = RunConfig(
        paper="meds", method="DAPO", profile="paper", seed=0, preset=preset, model=model,
        terms=(b.Correctness(), b.Overlong(max_length=length, buffer=512)),  # buffer: released code
        dual_clip=10.0 if preset == "released" else None, **settings,  # released code
    )
    changes = {**of_paper["grpo"], **(of_paper["grpo_released"] if preset == "released" else {})}
    grpo = replace(dapo, method="GRPO", terms=(b.Correctness(),), dual_clip=None, **changes)
    # "alpha 0.1, beta 0.2" but for Qwen3-8B; "the last 14 layers" for all models (Sec. 4.1)
    alpha, beta = (0.02, 0.04) if model == QWEN3_8B else (0.1, 0.2)
    meds = (Meds.paper if preset == "paper" else Meds.released)(alpha=alpha, beta=beta, last_n=14)
    return {
        "Base": replace(dapo, method="Base", terms=(), max_steps=0),
        "GRPO": grpo,
        "DAPO": dapo,
        # "alpha 0.4, kappa 2" (released code)
        "GRPO w/ Entropy Adv": replace(
            grpo, method="GRPO w/ Entropy Adv", entropy_alpha=0.4, entropy_kappa=2.0
        ),
        "MEDS": replace(dapo, method="MEDS", terms=(*dapo.terms, ClusterPenalty(meds))),
    }[method]


def _scaled_down(config: RunConfig, profile: str, model: str) -> RunConfig:
    """What a profile changes; what is counted in steps or tokens follows in proportion."""
    of_profile = SETTINGS[profile]
    changes = {**of_profile["both"], **of_profile.get(config.paper, {}), "model": model}
    if config.max_steps:
        warmup = config.warmup_steps * changes["max_steps"] / config.max_steps
        changes["warmup_steps"] = round(warmup)
    else:
        changes["max_steps"] = 0
    terms = tuple(_rescale(term, config, changes) for term in config.terms)
    return replace(config, **{**changes, "profile": profile, "terms": terms})


def _rescale(term: Any, config: RunConfig, changes: dict[str, Any]) -> Any:
    """A reward term under a profile: what it counts in tokens, steps or problems follows in
    proportion; what it counts in characters or samples stays, and so does all else."""

    def scaled(value: int, new: int, old: int) -> int:
        return max(1, round(value * new / old))

    new, old = changes["max_completion_length"], config.max_completion_length
    if isinstance(term, b.Overlong):
        return replace(term, max_length=new, buffer=scaled(term.buffer, new, old))
    if isinstance(term, b.CosineLength) and term.unit == "tokens":
        return replace(term, max_length=new)
    if isinstance(term, ClusterPenalty):
        return replace(term, settings=replace(term.settings, last_n=None))  # the later half
    if isinstance(term, Exploit | Explore):
        steps = (changes["max_steps"], config.max_steps)
        problems = (problem_count(changes["dataset"]), problem_count(config.dataset))
        s = term.settings
        warmup = steps if s.explore_warmup_unit == "steps" else problems
        return replace(term, settings=replace(
            s,
            encoder="tiny" if changes["model"] == "tiny" else s.encoder,
            max_queries=scaled(s.max_queries, *problems),
            explore_warmup=scaled(s.explore_warmup, *warmup),
            window=scaled(s.window, *steps) if s.window_unit == "steps" else s.window,
        ))
    return term


def eval_settings(
    paper: str, profile: str, split: str, *, greedy: bool = False, model: str | None = None
) -> EvalSettings:
    """How checkpoints are evaluated: ``split`` is ``test`` or ``validation``.

    Temperature 1 and top-p 1, pass@k from n samples (MEDS Sec. 4.1: "maximum tokens as in
    training"), or greedy. The Memory-R+ paper's evaluation sets no sampling parameter (see its
    notes); both are reported. It allows 32,768 tokens (code) to models trained to write 200: here
    2,048, since what is longer does not end, and is counted as truncated.
    """
    check_choice("split", split, ("test", "validation"))
    config = recipe(paper, "Base", profile, 0, model=model)
    task, samples = TASKS[profile][paper][split]
    samples = 1 if greedy else samples
    real, length = task.startswith("paperlib"), config.max_completion_length
    if real and paper == "memory_r":
        length = 2048 if profile == "paper" else 256
    return EvalSettings(
        task=task, samples=samples, temperature=0.0 if greedy else 1.0, top_p=1.0,
        max_completion_length=length, seed=0 if split == "test" else 1,
        prompt=config.prompt.removesuffix("-oneshot"),  # tests are 0-shot
        # Sec. 4.1 of Memory-R+: LightEval's extractive match
        grading="extractive" if real and paper == "memory_r" else "math",
    )
