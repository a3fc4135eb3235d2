"""The one thing every reward term sees: a batch of graded rollouts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from paperlib.errors import UserError


@dataclass
class Rollouts:
    """``n = groups x num_generations`` completions, the ones of a prompt next to each other.

    Under dynamic sampling these are the kept groups only, so that no term ever remembers a
    dropped one.
    """

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


class RewardTerm(Protocol):
    """One number per rollout. May also define ``state_dict()`` and ``load_state_dict(state)``."""

    name: str

    def __call__(self, rollouts: Rollouts) -> Sequence[float]: ...


def call_term(term: RewardTerm, rollouts: Rollouts) -> np.ndarray:
    """The term's rewards as ``[n]`` float64.

    Raises:
        UserError: wrong length, NaN or infinity, or what the term itself refuses; names the term
            and the step.
    """
    where = f"reward term {term.name!r} at step {rollouts.step}"
    try:
        values = np.asarray(term(rollouts), dtype=np.float64)
    except UserError as error:
        raise UserError(f"{where}: {error}") from error
    if values.shape != (len(rollouts),):
        raise UserError(f"{where} returned shape {values.shape}; expected ({len(rollouts)},)")
    bad = np.flatnonzero(~np.isfinite(values))
    if bad.size:
        raise UserError(
            f"{where} returned {values[bad[0]]} for rollout {bad[0]} "
            f"(problem {rollouts.problem_ids[bad[0]]}); {bad.size} of {len(values)} are not finite"
        )
    return values
