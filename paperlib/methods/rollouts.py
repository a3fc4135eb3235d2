"""The one thing every reward term sees: a batch of graded rollouts."""

import reprlib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, Protocol, get_args, get_origin

import numpy as np

from paperlib.errors import UserError, check_choice


@dataclass
class Rollouts:
    """``n = groups x num_generations`` completions, the ones of a prompt next to each other; under
    dynamic sampling of the kept groups only, so that no term ever remembers a dropped one."""

    step: int  # generation step, counted from 1
    num_generations: int  # G, completions per prompt
    problem_ids: list[str]  # [n]
    questions: list[str]  # [n] the bare question, without system prompt or template
    golds: list[str]  # [n]
    completions: list[str]  # [n] decoded text without special tokens
    lengths: np.ndarray  # [n] int, completion tokens, the end token included
    truncated: np.ndarray  # [n] bool, stopped by max_completion_length
    accuracy: np.ndarray  # [n] float, raw outcome (0 or 1), before any reward term
    max_completion_length: int  # tokens
    layer_logits: np.ndarray | None = None  # [n, layers] float32; NaN rows: no final answer

    def __len__(self) -> int:
        return len(self.completions)


def rows_by_key(keys: Sequence[str]) -> dict[str, np.ndarray]:
    """Where each key stands, in the order of their first places."""
    rows: dict[str, list[int]] = {}
    for row, key in enumerate(keys):
        rows.setdefault(key, []).append(row)
    return {key: np.array(members) for key, members in rows.items()}


def check_settings(settings: Any, **least: float) -> None:
    """Refuse what a field's Literal does not list, and numbers below ``least``; None is free."""
    for item in fields(settings):
        value = getattr(settings, item.name)
        if get_origin(item.type) is Literal:
            check_choice(item.name, value, get_args(item.type))
        elif item.name in least and value is not None and not value >= least[item.name]:
            raise UserError(f"{item.name} is {value}; it must be at least {least[item.name]}")


class RewardTerm(Protocol):
    """One number per rollout. May also define ``state_dict()`` and ``load_state_dict(state)``."""

    name: str

    def __call__(self, rollouts: Rollouts) -> Sequence[float]: ...


def call_term(term: RewardTerm, rollouts: Rollouts) -> np.ndarray:
    """The term's rewards as ``[n]`` float64; it may return a list, an array or a tensor of any
    type, device and gradient."""
    where = f"reward term {term.name!r} at step {rollouts.step}"
    try:
        got = term(rollouts)
    except UserError as error:
        raise UserError(f"{where}: {error}") from error

    def plain(value: Any) -> Any:  # a tensor, an array or a number of theirs as Python's numbers
        return value.tolist() if hasattr(value, "tolist") else value

    try:
        values = np.asarray([*map(plain, got)] if isinstance(got, list | tuple) else plain(got))
    except ValueError:  # lists of several lengths
        values = np.asarray(None)
    numbers = values.dtype.kind in "biuf"
    if not numbers or values.shape != (len(rollouts),):
        what = f"shape {values.shape}" if numbers else f"{type(got).__name__} {reprlib.repr(got)}"
        raise UserError(
            f"{where} returned {what}; expected ({len(rollouts)},) numbers in a list, an array or "
            "a tensor"
        )
    values = values.astype(np.float64)
    bad = np.flatnonzero(~np.isfinite(values))
    if bad.size:
        raise UserError(
            f"{where} returned {values[bad[0]]} for rollout {bad[0]} "
            f"(problem {rollouts.problem_ids[bad[0]]}); {bad.size} of {len(values)} are not finite"
        )
    return values


def call_terms(
    terms: Sequence[RewardTerm], rollouts: Rollouts
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Each term's rewards by its name, and their sums ``[n]``: at most 1e150, beyond which the
    variance is no float64."""
    values = {term.name: call_term(term, rollouts) for term in terms}
    with np.errstate(over="ignore"):
        rewards = np.sum(list(values.values()), axis=0)
    bad = np.flatnonzero(~(np.abs(rewards) <= 1e150))
    if bad.size:
        parts = ", ".join(f"{name!r} {value[bad[0]]:g}" for name, value in values.items())
        raise UserError(
            f"the reward terms at step {rollouts.step} sum to {rewards[bad[0]]:g} for rollout "
            f"{bad[0]} (problem {rollouts.problem_ids[bad[0]]}): {parts}; valid: up to 1e150"
        )
    return values, rewards
