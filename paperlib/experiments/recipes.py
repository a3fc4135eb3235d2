"""Which settings each method of each paper is run with; every number with its source.

``recipe(paper, method, profile, seed, preset)`` starts from the paper's own settings and lets the
profile change what a profile may change: model, data, learning rate, batch and sequence sizes, and
what is counted in steps or tokens. Reward terms, loss, clips, KL and preset never change.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from paperlib.errors import UserError, check_choice
from paperlib.evaluation.settings import EvalSettings
from paperlib.methods.baselines import (
    Correctness,
    CosineLength,
    IntegerAnswer,
    Overlong,
    SoftFormat,
    StrictFormat,
    XmlCount,
)
from paperlib.methods.meds import ClusterPenalty, Meds
from paperlib.methods.memory_r import Exploit, Explore, MemoryR
from paperlib.rl.config import RunConfig

METHODS: dict[str, tuple[str, ...]] = {
    "memory_r": ("Base", "R1", "Cosine", "Memory-R", "Memory-R+"),
    "meds": ("Base", "GRPO", "DAPO", "GRPO w/ Entropy Adv", "MEDS"),
}
PROFILES = ("smoke", "tiny", "paper")
PRESETS = ("paper", "released")


def recipe(paper: str, method: str, profile: str, seed: int, preset: str = "paper") -> RunConfig:
    """The RunConfig of one cell of the grid.

    Raises:
        UserError: unknown paper, method, profile or preset; names the valid ones.
    """
    check_choice("paper", paper, METHODS)
    check_choice(f"method of {paper}", method, METHODS[paper])
    check_choice("profile", profile, PROFILES)
    check_choice("preset", preset, PRESETS)
    if method == "Base":
        seed, preset = 0, "paper"  # the same model whatever is asked for
    base = (_memory_r if paper == "memory_r" else _meds)(method, preset)
    config = replace(base, profile=profile, seed=seed)
    if profile != "paper":
        config = _scale_down(config, TINY[paper] if profile == "tiny" else SMOKE)
    return config


def _memory_r(method: str, preset: str) -> RunConfig:
    """Memory-R+ on GSM8K (arXiv 2504.02273, Table 4 and Sec. 4.1)."""
    rewards: tuple[Any, ...] = (
        Correctness(rule="math" if preset == "paper" else "string"),
        IntegerAnswer(preset),
        XmlCount(preset),
        SoftFormat(preset),
        StrictFormat(preset),
    )
    max_completion_length = 200  # Table 4: "max completion length 200"
    cosine = (
        CosineLength.paper(max_completion_length) if preset == "paper" else CosineLength.released()
    )
    name = "Memory-R" if method == "Memory-R" else "Memory-R+"  # N and L of the released code
    memory = MemoryR.paper() if preset == "paper" else MemoryR.released(name)
    terms = {
        "Base": (),
        "R1": rewards,
        "Cosine": (*rewards, cosine),
        "Memory-R": (*rewards, Exploit(memory)),  # eq. 4
        "Memory-R+": (*rewards, Exploit(memory), Explore(memory)),  # eqs. 4 and 5
    }[method]
    return RunConfig(
        paper="memory_r", method=method, profile="paper", seed=0, preset=preset, terms=terms,
        model="Qwen/Qwen2.5-0.5B-Instruct",  # Table 5, one of three
        dataset="gsm8k-train", prompt="tags",
        prompts_per_step=16,  # Table 4: batch 2 x accumulation 8, in prompts
        max_steps=467 if terms else 0,  # Table 4: 1 epoch, of 7,473 problems
        num_generations=16,  # Table 4
        max_prompt_length=256, max_completion_length=max_completion_length,  # Table 4
        temperature=0.9,  # not stated; the default of TRL 0.14, which the released code pins
        loss_type="grpo", epsilon=0.2, epsilon_high=0.2,  # not stated; TRL 0.14
        beta=0.04,  # not stated; TRL 0.14
        advantage_epsilon=1e-4,  # not stated; TRL 0.14
        mini_batches=1,  # not stated; TRL 0.14 makes one update per generation batch
        learning_rate=5e-6, lr_scheduler_type="cosine",  # Table 4
        warmup_steps=47,  # Table 4: warm-up ratio 0.1
        adam_beta1=0.9, adam_beta2=0.99, weight_decay=0.1, max_grad_norm=0.1,  # Table 4
        precision="bf16",  # Table 4
        save_steps=100,  # released code
    )


def _meds(method: str, preset: str) -> RunConfig:
    """MEDS and its baselines (arXiv 2604.11297, Sec. 4.1)."""
    length = 3072  # Qwen2.5-Math-7B
    dapo = RunConfig(
        paper="meds", method="DAPO", profile="paper", seed=0, preset=preset,
        terms=(Correctness(), Overlong(max_length=length, buffer=512)),  # buffer: released code
        model="Qwen/Qwen2.5-Math-7B", dataset="dapo-math-17k+math-3to5", prompt="boxed",
        prompts_per_step=512, num_generations=16,  # "512 prompts x 16 rollouts"
        max_prompt_length=1024, max_completion_length=length,
        max_steps=100,  # Sec. 4.3 looks at steps up to about 100
        temperature=1.0, top_p=1.0,
        dynamic_sampling=True, max_generation_batches=10,  # bound: released code
        loss_type="dapo", epsilon=0.2, epsilon_high=0.28, beta=0.0,
        dual_clip=10.0 if preset == "released" else None,  # released code
        advantage_epsilon=1e-6,  # not stated; verl's
        mini_batches=32,  # mini-batch of 16 prompts
        learning_rate=1e-6, lr_scheduler_type="constant_with_warmup", warmup_steps=10,
        weight_decay=0.1, max_grad_norm=1.0,
        precision="bf16", gradient_checkpointing=True, micro_batch_tokens=16384,  # ours
        save_steps=25,  # not stated; ours
    )
    grpo = replace(
        dapo, method="GRPO", terms=(Correctness(),), dynamic_sampling=False, loss_type="grpo",
        epsilon_high=0.2, beta=1e-3, dual_clip=None,
    )
    if preset == "released":  # released code: mini-batch 32, other decay, no warm-up, 7,168 tokens
        grpo = replace(grpo, mini_batches=16, weight_decay=0.01, warmup_steps=0,
                       max_completion_length=7168)
    # "alpha 0.1, beta 0.2" for this model; "the last 14 layers", half of its 28
    meds = (Meds.paper if preset == "paper" else Meds.released)(alpha=0.1, beta=0.2, last_n=14)
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


# Training problems of the Memory-R+ recipes: N = |D|.
PROBLEMS = {
    "gsm8k-train": 7473, "numinamath-tir-2000": 2000, "tiny-train": 128, "tiny-small": 64,
    "tiny-smoke": 8,
}

# What the profiles change. All of it is ours, the same for every method of a paper.
_TINY_WORLD: dict[str, Any] = {
    "model": "tiny", "dataset": "tiny-train", "precision": "fp32",
    "gradient_checkpointing": False, "micro_batch_tokens": 4096,
    "prompts_per_step": 8, "num_generations": 16, "max_steps": 48, "save_steps": 16,
    "max_prompt_length": 80, "max_completion_length": 80,
}
TINY: dict[str, dict[str, Any]] = {
    "memory_r": {**_TINY_WORLD, "learning_rate": 2e-4},
    # several mini-batches, or the clip never acts: 2 of 4 prompts where the paper has 32 of 16
    "meds": {**_TINY_WORLD, "learning_rate": 1e-4, "mini_batches": 2},
}
SMOKE: dict[str, Any] = {
    **_TINY_WORLD, "dataset": "tiny-smoke", "prompts_per_step": 4, "num_generations": 8,
    "max_steps": 8, "save_steps": 4, "mini_batches": 2, "learning_rate": 1e-4,
}


def _scale_down(config: RunConfig, changes: dict[str, Any]) -> RunConfig:
    """Apply a profile; what is counted in steps or tokens follows in proportion."""
    changes = dict(changes)
    if config.mini_batches == 1:
        changes["mini_batches"] = 1  # one update per generation batch is the method's, not a size
    elif config.preset == "released" and config.mini_batches == 16:
        changes["mini_batches"] = max(2, changes["mini_batches"] // 2)
    if not config.max_steps:
        changes["max_steps"] = 0
    else:
        changes["warmup_steps"] = round(
            config.warmup_steps * changes["max_steps"] / config.max_steps
        )
    changes["terms"] = tuple(_rescale(term, config, changes) for term in config.terms)
    return replace(config, **changes)


def _rescale(term: Any, config: RunConfig, changes: dict[str, Any]) -> Any:
    """A reward term under a profile: what it counts in tokens, steps or problems follows in
    proportion; what it counts in characters or samples stays, and so does all else."""

    def scaled(value: int, new: int, old: int) -> int:
        return max(1, round(value * new / old))

    new, old = changes["max_completion_length"], config.max_completion_length
    if isinstance(term, Overlong):
        return replace(term, max_length=new, buffer=scaled(term.buffer, new, old))
    if isinstance(term, CosineLength) and term.unit == "tokens":
        return replace(term, max_length=new)
    if isinstance(term, ClusterPenalty):
        return replace(term, settings=replace(term.settings, last_n=None))  # the later half
    if isinstance(term, Exploit | Explore):
        steps = (changes["max_steps"], config.max_steps)
        problems = (PROBLEMS[changes["dataset"]], PROBLEMS[config.dataset])
        s = term.settings
        warmup = steps if s.explore_warmup_unit == "steps" else problems
        return replace(term, settings=replace(
            s,
            encoder="tiny",
            max_queries=scaled(s.max_queries, *problems),
            explore_warmup=scaled(s.explore_warmup, *warmup),
            window=scaled(s.window, *steps) if s.window_unit == "steps" else s.window,
        ))
    return term


def eval_settings(paper: str, profile: str, split: str, *, greedy: bool = False) -> EvalSettings:
    """How checkpoints are evaluated: ``split`` is ``test`` or ``validation``.

    Temperature 1 and top-p 1, pass@k from n samples (MEDS Sec. 4.1: n = 128; here 16); or greedy.
    The Memory-R+ paper's evaluation sets no sampling parameter (see its notes); both are reported.

    Raises:
        UserError: unknown paper, profile or split; a profile whose test sets are not shipped.
    """
    check_choice("paper", paper, METHODS)
    check_choice("profile", profile, PROFILES)
    check_choice("split", split, ("test", "validation"))
    if profile == "paper":
        raise UserError("profile 'paper' has no evaluation tasks yet; valid here: smoke, tiny")
    config = recipe(paper, "Base", profile, 0)
    samples = {"smoke": 4, "tiny": 16 if split == "test" else 8}[profile]
    samples = 1 if greedy else samples
    return EvalSettings(
        task="tiny_smoke" if profile == "smoke" else f"tiny_{split}",
        samples=samples,
        temperature=0.0 if greedy else 1.0,
        top_p=1.0,
        max_completion_length=config.max_completion_length,
        seed=0 if split == "test" else 1,
        prompt=config.prompt,
        batch_prompts=256 // samples,
    )
