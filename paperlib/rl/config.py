"""RunConfig: everything that decides what a training run computes, in the field's names."""

import json
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

from paperlib.errors import UserError, check_choice
from paperlib.files import as_json, read_json, short_hash, whole_checkpoints

ENGINES = ("ours", "trl")
CHOICES = {
    "loss_type": ("grpo", "dapo", "dr_grpo"), "precision": ("fp32", "bf16"),
    "lr_scheduler_type": ("constant_with_warmup", "cosine"), "preset": ("paper", "released"),
    "engine": ENGINES,
}  # fmt: skip
LEAST = {"num_generations": 2, "seed": 0, "max_steps": 0, "warmup_steps": 0}  # other numbers: 1
# Dynamic sampling of the TRL engine is one draw of so many times prompts_per_step groups, where our
# loop draws until it has them.
OVERSAMPLING = 2
# Settings that came later than the first runs: at these values they change nothing and are left
# out of a config, so that stored runs keep their names.
LATER = {"scale_only_mixed_groups": False, "engine": "ours", "max_skipped_steps": 5}


@dataclass(frozen=True)
class RunConfig:
    """One training run. Equal configs give equal runs (bit-identical on CPU).

    Names are TRL's where TRL has the setting; batch sizes count prompts. ``terms`` are the reward
    terms (frozen dataclasses, summed with weight 1): a method is its terms plus the objective.
    """

    # what is trained
    paper: str  # "memory_r" or "meds"
    method: str  # the row of the paper's table
    profile: str
    seed: int
    model: str  # "tiny", a folder or a hub id
    dataset: str  # a name that tasks.data.load_problems knows
    prompt: str  # a name in tasks.prompts.SYSTEM_PROMPTS
    terms: tuple[Any, ...]
    preset: str = "paper"

    # rollouts
    max_steps: int = 60  # generation steps; 0 = the base model
    prompts_per_step: int = 8
    num_generations: int = 16  # G
    max_prompt_length: int = 256  # tokens
    max_completion_length: int = 200  # tokens
    temperature: float = 1.0
    top_p: float = 1.0
    dynamic_sampling: bool = False  # DAPO: groups without spread in raw accuracy are resampled
    max_generation_batches: int = 10  # bound of the resampling in one step
    max_empty_steps: int = 5  # a run without any mixed group for so many steps ends

    # objective
    loss_type: str = "grpo"
    epsilon: float = 0.2
    epsilon_high: float = 0.2
    dual_clip: float | None = None  # MEDS released code: 10
    beta: float = 0.0  # weight of the KL to the initial model
    scale_rewards: bool = True  # divide advantages by the group's standard deviation
    scale_only_mixed_groups: bool = False  # ours: groups all right or all wrong are only centred
    advantage_epsilon: float = 1e-4
    entropy_alpha: float = 0.0  # entropy advantage, 0 = off
    entropy_kappa: float = 2.0
    mask_truncated_completions: bool = False
    mini_batches: int = 1  # updates per generation batch

    # optimiser
    learning_rate: float = 1e-6
    lr_scheduler_type: str = "constant_with_warmup"  # or "cosine"
    warmup_steps: int = 0  # in generation steps
    adam_beta1: float = 0.9
    adam_beta2: float = 0.999
    adam_epsilon: float = 1e-8
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0
    max_skipped_steps: int = 5  # a run with no finite gradient for so many steps stops

    # machine
    engine: str = "ours"  # or "trl": rl.trl_engine, for several GPUs and vLLM
    precision: str = "fp32"  # or "bf16": autocast, weights stay float32
    gradient_checkpointing: bool = False
    micro_batch_tokens: int = 8192  # padded tokens of one forward pass with gradient
    save_steps: int = 15  # generation steps between checkpoints

    # What equal configs of another version computed otherwise: 2, since each rollout draws from
    # seed, prompt and place, and the tiny world has traps.
    version: int = 2

    def __post_init__(self) -> None:
        for name, valid in CHOICES.items():
            check_choice(name, getattr(self, name), valid)
        for name in (item.name for item in fields(self) if item.type is int):
            value, least = getattr(self, name), LEAST.get(name, 1)
            if value < least:
                raise UserError(f"{name} is {value}; it must be at least {least}")
        temperature, top_p, per_step = self.temperature, self.top_p, self.prompts_per_step
        trl, lacks = self.engine == "trl", f"{self.method!r}: engine 'trl' has no"
        unlike_trl = self.dynamic_sampling and self.loss_type != "dapo"
        for text, wrong in {
            f"seed is {self.seed}; it must be below 2**32": self.seed >= 2**32,  # numpy's
            f"mini_batches is {self.mini_batches}; it must divide prompts_per_step = {per_step}":
                per_step % self.mini_batches,
            f"temperature {temperature} must be above 0 and top_p {top_p} in (0, 1]":
                temperature <= 0 or not 0 < top_p <= 1,
            f"method {self.method!r} has no reward terms": self.max_steps and not self.terms,
            f"{lacks} entropy advantage (entropy_alpha is {self.entropy_alpha}); valid: 'ours'":
                trl and self.entropy_alpha,
            f"{lacks} dynamic sampling with loss_type {self.loss_type!r}; valid: 'dapo'":
                trl and unlike_trl,
            f"{lacks} base model (max_steps is 0); valid: 'ours'": trl and not self.max_steps,
        }.items():  # fmt: skip
            if wrong:
                raise UserError(text)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values; each reward term is ``{"term": class name, **its fields}``."""
        out = {k: v for k, v in _values(self).items() if k not in LATER or v != LATER[k]}
        return {**out, "terms": [term_to_dict(term) for term in self.terms]}

    @property
    def oversampling(self) -> int:
        """Groups drawn at once, in units of ``prompts_per_step``."""
        return OVERSAMPLING if self.dynamic_sampling and self.engine == "trl" else 1

    @property
    def hash(self) -> str:
        """Ten hex digits of the SHA-256 of the config; the same in every process."""
        return short_hash(self.to_dict())

    @property
    def name(self) -> str:
        """``<paper>-<method>-s<seed>-<hash>``: the run's folder name, safe on every file system."""
        slug = "".join(c if c.isalnum() else "-" for c in self.method.lower().replace("+", "-plus"))
        return f"{self.paper}-{slug.strip('-')}-s{self.seed}-{self.hash}"


def finished(config: RunConfig, folder: Path) -> bool:
    """Whether the folder holds the whole run; one of another config is refused."""
    path, ours, wrong = folder / "config.json", as_json(config.to_dict()), ""
    done = (folder / "complete.json").exists()
    if path.exists():
        theirs = read_json(path)
        wrong = "; ".join(
            f"{key} is {json.dumps(theirs.get(key))} there, {json.dumps(ours.get(key))} here"
            for key in sorted({**theirs, **ours})
            if theirs.get(key, ...) != ours.get(key, ...)
        )
    elif done or whole_checkpoints(folder):
        wrong = "it has no config.json that tells whose it is"
    if wrong:
        raise UserError(
            f"the run folder {folder} was made with another config: {wrong}. Nothing was changed; "
            "delete or move that folder, or choose another"
        )
    return done


def term_to_dict(term: Any) -> dict[str, Any]:
    """A reward term as JSON values."""
    if not is_dataclass(term) or isinstance(term, type):
        raise UserError(
            f"reward term {term!r} is not a dataclass instance; its fields are its settings, and "
            "the run's name is made from them"
        )
    try:
        return as_json({"term": type(term).__name__, **_values(term)})
    except (TypeError, ValueError) as error:
        raise UserError(
            f"reward term {term!r} has a setting that is no number, text, list or dict of them "
            f"({error}), and the run's name is made from its settings"
        ) from error


def _values(settings: Any) -> dict[str, Any]:
    """A dataclass by field, those in it too; 1 and 1.0 of a float are one setting."""
    out = {}
    for item in fields(settings):
        value = getattr(settings, item.name)
        if is_dataclass(value):
            value = _values(value)
        elif "float" in str(item.type) and type(value) is int:
            value = float(value)
        out[item.name] = value
    return out
