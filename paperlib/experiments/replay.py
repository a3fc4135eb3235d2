"""Replay: any reward term recomputed from a run's stored rollouts, in seconds, without a model.

    replay(run, Explore(MemoryR.released()))        # another preset on the same rollouts
    replay(run, ClusterPenalty(Meds.paper(diff=True)))      # another feature variant

With the run's own settings the outcome equals what the run logged.
"""

import copy
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from paperlib.errors import UserError
from paperlib.experiments.store import Run
from paperlib.methods.rollouts import RewardTerm, Rollouts, call_term
from paperlib.tasks.data import load_problems


def stored_rollouts(run: Run, stored: pd.DataFrame) -> Iterator[Rollouts]:
    """``stored = run.rollouts()`` step by step, as the run's reward terms saw them."""
    questions = {p.id: p.question for p in load_problems(run.config.dataset)}
    for step, frame in stored.groupby("step", sort=True):
        logits = frame.get("layer_logits")
        yield Rollouts(
            step=int(step),
            num_generations=run.config.num_generations,
            problem_ids=frame["problem_id"].tolist(),
            questions=[questions[i] for i in frame["problem_id"]],
            golds=frame["gold"].tolist(),
            completions=frame["completion"].tolist(),
            lengths=frame["length"].to_numpy(),
            truncated=frame["truncated"].to_numpy(),
            accuracy=frame["accuracy"].to_numpy(),
            max_completion_length=run.config.max_completion_length,
            layer_logits=None if logits is None else np.stack(logits.tolist()),
        )


def replay(run: Run, term: RewardTerm) -> pd.DataFrame:
    """Let a fresh copy of ``term`` see the run's rollouts, step by step.

    Columns ``step``, ``problem_id``, ``reward`` (the term now) and ``logged`` (the term of the same
    name in the run, NaN if it had none), one row per rollout.
    """
    _check_layer_logits(run, term)
    term, stored = copy.deepcopy(term), run.rollouts()
    rewards = [call_term(term, rollouts) for rollouts in stored_rollouts(run, stored)]
    return stored[["step", "problem_id"]].assign(
        reward=np.concatenate(rewards), logged=stored.get(f"reward/{term.name}", np.nan)
    )


def _check_layer_logits(run: Run, term: Any) -> None:
    if not getattr(term, "needs_layer_logits", False):
        return
    recorded = [t.settings for t in run.config.terms if getattr(t, "needs_layer_logits", False)]
    if not recorded:
        raise UserError(f"{run.config.name} recorded no layer logits; replay a MEDS run")
    for name in ("logit", "position"):
        have, want = getattr(recorded[0], name), getattr(term.settings, name)
        if have != want:
            raise UserError(
                f"{run.config.name} recorded layer logits with {name} {have!r}, the term wants "
                f"{want!r}; replay it with {name}={have!r}"
            )
