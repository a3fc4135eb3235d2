"""What each divergence of the presets ``paper`` and ``released`` does to the same rollouts.

Stored rollouts are rewarded anew (:mod:`paperlib.experiments.replay`) with one field of a term, or
one coupled pair, switched from the paper's reading to the released code's, then with all of them.
The policy that wrote the rollouts was trained on the paper's reading: a replay tells what the
rewards of a step would have been, not what training on them would have led to.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import pandas as pd

from paperlib.experiments.replay import replay
from paperlib.experiments.store import Run
from paperlib.rl.config import RunConfig

# A number and its unit: one means nothing without the other.
COUPLED = (("window", "window_unit"), ("explore_warmup", "explore_warmup_unit"))
NOT_RECORDED = {
    "logit": "a run records one kind of layer logit; the raw ones cannot be computed back",
    "position": "a run records the layer logits of one position only",
}
ALL = "all at once"
TOLERANCE = 1e-6  # rewards nearer than this count as equal


@dataclass(frozen=True)
class Divergence:
    """A term of a run's config with one divergence switched, or why that cannot be replayed."""

    what: str  # "order write-then-read"
    term: Any  # switched; the run's own where there is a reason
    reason: str = ""


def divergences(paper: RunConfig, released: RunConfig) -> list[Divergence]:
    """All divergences of the reward terms of one method under both presets, term by term.

    A term with ``settings`` is switched field by field and then altogether, any other one as a
    whole.
    """
    out = []
    for ours, theirs in zip(paper.terms, released.terms, strict=True):
        if ours == theirs:
            continue
        if not hasattr(ours, "settings"):
            out.append(Divergence(ALL, theirs))
            continue
        kept = {f: getattr(ours.settings, f) for f in NOT_RECORDED if hasattr(ours.settings, f)}
        for names in _differing(ours.settings, theirs.settings):
            values = {name: getattr(theirs.settings, name) for name in names}
            what = " ".join(map(str, (names[0], *values.values())))  # "window 100 samples"
            if reason := NOT_RECORDED.get(names[0], ""):
                out.append(Divergence(what, ours, reason))
            else:
                out.append(Divergence(what, _with(ours, replace(ours.settings, **values))))
        out.append(Divergence(ALL, _with(ours, replace(theirs.settings, **kept))))
    return out


def _with(term: Any, settings: Any) -> Any:
    return type(term)(settings)


def _differing(ours: Any, theirs: Any) -> list[tuple[str, ...]]:
    """The fields in which two settings differ, those of COUPLED together."""
    whole = {name: pair for pair in COUPLED for name in pair}
    names = [f.name for f in fields(ours) if getattr(ours, f.name) != getattr(theirs, f.name)]
    return list(dict.fromkeys(whole.get(name, (name,)) for name in names))


def effect(
    logged: np.ndarray, switched: np.ndarray, accuracy: np.ndarray, num_generations: int
) -> dict[str, float]:
    """How far rewards ``[n]`` went from the logged ones, ``n`` rollouts in whole groups.

    Returns:
        ``changed``, % of rollouts; ``change``, mean absolute; ``correlation``, NaN if one of the
        two is constant; ``reordered``, % of the pairs of a group whose order (above, equal, below)
        is another: the advantages see nothing but differences within groups; ``right`` and
        ``wrong``, mean reward of rollouts by accuracy, with ``right logged`` and ``wrong logged``.
    """
    gaps, right = np.abs(switched - logged), accuracy > 0.5
    constant = min(np.ptp(logged), np.ptp(switched)) < TOLERANCE
    orders = [_order(values.reshape(-1, num_generations)) for values in (logged, switched)]
    return {
        "changed": 100 * float((gaps > TOLERANCE).mean()),
        "change": float(gaps.mean()),
        "correlation": np.nan if constant else float(np.corrcoef(logged, switched)[0, 1]),
        "reordered": 100 * float((orders[0] != orders[1]).mean()),
        "right": float(switched[right].mean()),
        "wrong": float(switched[~right].mean()),
        "right logged": float(logged[right].mean()),
        "wrong logged": float(logged[~right].mean()),
    }


def _order(groups: np.ndarray) -> np.ndarray:
    """Sign of the difference of every pair of a group, ``[groups, pairs]``: -1, 0 (equal), 1."""
    first, second = np.triu_indices(groups.shape[1], k=1)
    differences = groups[:, first] - groups[:, second]
    return np.where(np.abs(differences) > TOLERANCE, np.sign(differences), 0)


def replay_frame(run: Run, switched: Iterable[Divergence]) -> pd.DataFrame:
    """The :func:`effect` of every divergence on a run: ``method``, ``seed``, ``term``, ``what``,
    ``reason``, then its columns, NaN where there is a reason."""
    accuracy = run.rollouts()["accuracy"].to_numpy()
    rows = []
    for one in switched:
        row: dict[str, Any] = {"method": run.config.method, "seed": run.config.seed,
                               "term": one.term.name, "what": one.what, "reason": one.reason}
        if not one.reason:
            found = replay(run, one.term)
            rewards = (found[name].to_numpy() for name in ("logged", "reward"))
            row |= effect(*rewards, accuracy, run.config.num_generations)
        rows.append(row)
    return pd.DataFrame(rows)
