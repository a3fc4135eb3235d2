"""The theorem of MEDS (arXiv 2604.11297, Sec. 3.2) on many random policies, and on a stored run.

The formulas are those of :mod:`paperlib.methods.meds_theorem`.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from paperlib.errors import check_choice
from paperlib.experiments.replay import replay
from paperlib.experiments.store import Run
from paperlib.experiments.variants import cluster_term
from paperlib.methods.meds_theorem import (
    aligned,
    gain,
    optimal_policy,
    penalty_weights,
    reweighted,
)
from paperlib.report.style import GREY, INK, SERIES, panels

COSTS = ("wrong answers only", "falls with the reward", "any")


def random_cases(draws: int, seed: int, kind: str) -> pd.DataFrame:
    """Random policies over 2 to 12 answers with eta in [0.1, 10] and lambda in [0, 2].

    Args:
        kind: "wrong answers only", a 0/1 reward as in MEDS; "falls with the reward", real rewards
            and a cost that never rises with them, with ties; "any", a cost that ignores them.

    Returns:
        ``formula`` = Cov(r, w) / E[w]; ``direct`` = J(q2) - J(q1) of the two optima, found one by
        one; ``error``, the larger of their difference and that of the two ways to q2; ``aligned``.
    """
    check_choice("kind of cost", kind, COSTS)
    rng, lines = np.random.default_rng([seed, COSTS.index(kind)]), []
    for _ in range(draws):
        n, eta, strength = rng.integers(2, 13), rng.uniform(0.1, 10), rng.uniform(0, 2)
        reference, cost = rng.dirichlet(np.ones(n)), rng.uniform(0, 1, n)
        reward = rng.integers(0, 2, n).astype(float)
        if kind == "wrong answers only":
            cost *= reward == 0
        elif kind == "falls with the reward":
            reward = rng.uniform(0, 1, n).round(1)
            cost = np.exp(-3 * np.floor(3 * reward))
        q1 = optimal_policy(reference, reward, eta)
        q2 = optimal_policy(reference, reward - strength * cost, eta)
        weights = penalty_weights(cost, eta, strength)
        formula, direct = gain(q1, reward, weights), float(q2 @ reward - q1 @ reward)
        error = max(abs(formula - direct), float(abs(q2 - reweighted(q1, weights)).max()))
        lines.append((kind, formula, direct, error, aligned(reward, cost)))
    return pd.DataFrame(lines, columns=["cost", "formula", "direct", "error", "aligned"])


def gain_sweep(
    reference: np.ndarray, reward: np.ndarray, costs: dict[str, np.ndarray], eta: float,
    strengths: np.ndarray,
) -> pd.DataFrame:
    """J(q2) - J(q1) of one policy for each cost and lambda: columns cost, strength, gain."""
    q1 = optimal_policy(reference, reward, eta)
    return pd.DataFrame([
        (name, strength, gain(q1, reward, penalty_weights(cost, eta, strength)))
        for name, cost in costs.items() for strength in strengths
    ], columns=["cost", "strength", "gain"])  # fmt: skip


def aligned_as_printed(reward: np.ndarray, cost: np.ndarray) -> bool:
    """The paper's condition to the letter: c(y1) >= c(y2) implies r(y1) <= r(y2)."""
    reward, cost = np.asarray(reward), np.asarray(cost)
    return not bool(((cost[:, None] >= cost) & (reward[:, None] > reward)).any())


def run_alignment(run: Run) -> pd.DataFrame:
    """Whether a run's cluster penalty was a cost that the theorem allows, group by group.

    Returns:
        A row per step and prompt: ``right`` (largest cost of a right rollout), ``wrong`` (smallest
        of a wrong one), ``aligned`` (what the proof needs), ``as_printed``; by replay.

    Raises:
        UserError: the run recorded no layer logits.
    """
    costs = replay(run, cluster_term(run.config))
    frame = costs.assign(cost=0.0 - costs["reward"], accuracy=run.rollouts()["accuracy"])
    lines = []
    for (step, problem), rows in frame.groupby(["step", "problem_id"]):
        reward, cost = rows["accuracy"].to_numpy(), rows["cost"].to_numpy()
        right = reward >= 0.5
        lines.append((step, problem, cost[right].max(initial=0.0), cost[~right].min(initial=np.inf),
                      aligned(reward, cost), aligned_as_printed(reward, cost)))
    columns = ["step", "problem_id", "right", "wrong", "aligned", "as_printed"]
    return pd.DataFrame(lines, columns=columns)


def theorem_figure(cases: pd.DataFrame, sweep: pd.DataFrame, error: float) -> Figure:
    """The gain against lambda for each cost, and the formula against the direct computation.

    Args:
        cases: those to draw; ``error`` is the largest one of all.
    """
    figure, axes = panels(1, 2, width=4.8, height=3.8)
    left, right = axes[0]
    for (name, rows), color in zip(sweep.groupby("cost", sort=False), SERIES, strict=False):
        left.plot(rows["strength"], rows["gain"], color=color, label=name)
    left.axhline(0, color=GREY, lw=0.8)
    left.set(title="Gain of the penalty, one policy", xlabel="strength λ of the penalty",
             ylabel="J(q₂) − J(q₁)")
    left.legend(frameon=False, title="cost on")
    for fits, marker, color, name in ((True, "o", SERIES[0], "aligned"),
                                      (False, "x", SERIES[1], "not aligned")):
        rows = cases[cases["aligned"] == fits]
        right.scatter(rows["formula"], rows["direct"], s=14, marker=marker, c=color, alpha=0.5,
                      linewidths=0.8 if marker == "x" else 0, label=name)
    ends = [cases["direct"].min(), cases["direct"].max()]
    right.plot(ends, ends, color=INK, lw=0.6)
    right.axvline(0, color=GREY, lw=0.8)
    right.set(title=f"Random policies: they differ by {error:.0e} at most",
              xlabel="formula Cov(r, w) / E[w]", ylabel="J(q₂) − J(q₁) of the two optima")
    right.legend(frameon=False, title="cost")
    return figure
