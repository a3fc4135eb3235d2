"""What the small profiles change in a paper's settings, and what follows in proportion.

All of it is ours, and the same for every method of a paper.
"""

from dataclasses import replace
from typing import Any

from paperlib.methods.baselines import CosineLength, Overlong
from paperlib.methods.meds import ClusterPenalty
from paperlib.methods.memory_r import Exploit, Explore
from paperlib.rl.config import RunConfig
from paperlib.tasks.data import problem_count

_TINY_WORLD: dict[str, Any] = {
    "model": "tiny", "dataset": "tiny-train", "precision": "fp32",
    "gradient_checkpointing": False, "micro_batch_tokens": 4096,
    "prompts_per_step": 8, "num_generations": 16, "max_steps": 48, "save_steps": 16,
    "max_prompt_length": 80, "max_completion_length": 80,
}
_SMOKE: dict[str, Any] = {
    **_TINY_WORLD, "dataset": "tiny-smoke", "prompts_per_step": 4, "num_generations": 8,
    "max_steps": 8, "save_steps": 4, "mini_batches": 2, "learning_rate": 1e-4,
}
_LAPTOP: dict[str, Any] = {
    "dataset": "gsm8k-train:0-96", "precision": "fp32",  # also for a GPU without bf16
    "gradient_checkpointing": False, "micro_batch_tokens": 2048,
    # every problem is visited four times
    "prompts_per_step": 8, "num_generations": 8, "max_steps": 48, "save_steps": 24,
    "max_prompt_length": 256, "max_completion_length": 160,
}
# profile -> paper -> what it changes
CHANGES: dict[str, dict[str, dict[str, Any]]] = {
    "smoke": {"memory_r": _SMOKE, "meds": _SMOKE},
    "tiny": {
        "memory_r": {**_TINY_WORLD, "learning_rate": 2e-4},
        # several mini-batches, or the clip never acts: 2 of 4 prompts where the paper has 32 of 16
        "meds": {**_TINY_WORLD, "learning_rate": 1e-4, "mini_batches": 2},
    },
    "laptop": {  # learning rates not tuned
        "memory_r": {**_LAPTOP, "learning_rate": 1e-5},
        "meds": {**_LAPTOP, "learning_rate": 5e-6, "mini_batches": 2},
    },
}


def scale_down(config: RunConfig, changes: dict[str, Any]) -> RunConfig:
    """Apply a profile; what is counted in steps or tokens follows in proportion."""
    changes = dict(changes)
    if config.mini_batches == 1:
        changes["mini_batches"] = 1  # one update per generation batch is the method's, not a size
    elif config.preset == "released" and config.mini_batches == 16:
        changes["mini_batches"] = max(2, changes["mini_batches"] // 2)
    if config.max_steps:
        warmup = config.warmup_steps * changes["max_steps"] / config.max_steps
        changes["warmup_steps"] = round(warmup)
    else:
        changes["max_steps"] = 0
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
