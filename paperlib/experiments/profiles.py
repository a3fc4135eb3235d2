"""What the small profiles change in a paper's settings, and what follows in proportion."""

import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

from paperlib.methods.baselines import CosineLength, Overlong
from paperlib.methods.meds import ClusterPenalty
from paperlib.methods.memory_r import Exploit, Explore
from paperlib.rl.config import RunConfig
from paperlib.tasks.data import problem_count

_TEXT = Path(__file__).with_suffix(".toml").read_text("utf-8")
CHANGES: dict[str, dict[str, dict[str, Any]]] = tomllib.loads(_TEXT)


def scale_down(config: RunConfig, profile: str, model: str) -> RunConfig:
    """Apply a profile; what is counted in steps or tokens follows in proportion."""
    of_profile = CHANGES[profile]
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
