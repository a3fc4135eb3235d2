"""Diversity of rollouts in the tiny world, counted exactly where the paper asks an LLM.

MEDS (Sec. 4.3) has a language model score how diverse the rollouts of a prompt at one step are,
and how much later ones add to earlier ones. Here every rollout's solution path and every wrong
one's error category are known, so both become shares: no LLM, no prompt, no sampling of groups.

A group is all rollouts of a prompt at a step. Dynamic sampling drops groups that are all right or
all wrong, and they are not stored: training rollouts speak of mixed groups alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import pandas as pd

from paperlib.errors import UserError
from paperlib.tasks.grading import extract_answer
from paperlib.tasks.tiny.problems import tiny_problem
from paperlib.tasks.tiny.solutions import FAVOURITE, Step, diagnose, written_steps


def solution_path(completion: str) -> tuple[Step, ...]:
    """The equations a completion writes, in order; wording, checks and the answer do not count."""
    return tuple(written_steps(completion))


def pair_diversity(labels: Sequence[Hashable]) -> float:
    """1 - the probability that two different members of a group have the same label.

    Unbiased for any group size (pairs are drawn without replacement); NaN for fewer than two.
    """
    n = len(labels)
    if n < 2:
        return float("nan")
    alike = sum(count * (count - 1) for count in Counter(labels).values())
    return 1 - alike / (n * (n - 1))


def novelty(earlier: Sequence[Hashable], later: Sequence[Hashable]) -> float:
    """Share of the later group's members whose label no member of the earlier group has.

    NaN if either group is empty.
    """
    if not len(earlier) or not len(later):
        return float("nan")
    seen = set(earlier)
    return sum(label not in seen for label in later) / len(later)


def diagnosed(rollouts: pd.DataFrame) -> pd.DataFrame:
    """Rollouts with what they did: ``category`` (see ``diagnose``), ``favourite`` (of the prompt's
    thing), ``path`` and ``answer`` (text, "" if there is none).

    Args:
        rollouts: with ``step``, ``problem_id``, ``completion``, ``accuracy``, as ``Run.rollouts``.

    Raises:
        UserError: a problem that is not of the tiny world, whose errors nobody knows exactly.
    """
    out = rollouts.copy()
    try:
        problems = [tiny_problem(problem_id) for problem_id in out["problem_id"]]
    except KeyError as error:
        raise UserError(
            f"problem {error} is not of the tiny world; only its errors can be diagnosed exactly"
        ) from None
    out["category"] = [diagnose(p, c) for p, c in zip(problems, out["completion"], strict=True)]
    out["favourite"] = [FAVOURITE[problem.thing] for problem in problems]
    out["path"] = [solution_path(text) for text in out["completion"]]
    out["answer"] = [extract_answer(text) or "" for text in out["completion"]]
    return out


def responses(evaluations: Mapping[int, dict[str, Any]]) -> pd.DataFrame:
    """Stored evaluations by step as rollouts: the columns that :func:`diagnosed` needs.

    An evaluation keeps every response, so that, unlike in training, no group is left out.
    """
    return pd.DataFrame(
        [
            (step, problem["id"], text, float(grade))
            for step, result in evaluations.items()
            for problem in result["problems"]
            for text, grade in zip(problem["responses"], problem["grades"], strict=True)
        ],
        columns=["step", "problem_id", "completion", "accuracy"],
    )


def within_step(rollouts: pd.DataFrame) -> pd.DataFrame:
    """Diversity of every group: one row per ``step`` and ``problem_id``.

    ``path`` over all rollouts; ``wrong_path``, ``wrong_category``, ``wrong_answer`` over the wrong
    ones, NaN where fewer than two are wrong. Two wrong rollouts without an answer are alike.
    """
    groups = ["step", "problem_id"]
    wrong = rollouts[rollouts["accuracy"] < 0.5].groupby(groups)[["path", "category", "answer"]]
    out = rollouts.groupby(groups)[["path"]].agg(pair_diversity)
    return out.join(wrong.agg(pair_diversity).add_prefix("wrong_")).reset_index()


def across_step(
    rollouts: pd.DataFrame, epochs: Mapping[int, float], *, apart: tuple[float, float] = (0.5, 1.5)
) -> pd.DataFrame:
    """Novelty of every group against the last stored one of its prompt, about an epoch before.

    Args:
        epochs: epochs done after each step (the metric ``epoch``).
        apart: pairs of groups this many epochs apart are kept; the order is drawn anew every
            epoch, so visits of one prompt lie 0 to 2 epochs apart, 1 on average.

    Returns:
        ``earlier``, ``later`` (steps), ``problem_id``, ``path`` (novelty over all rollouts) and
        ``wrong_path`` (over the wrong ones of both), one row a pair.
    """
    index = ["problem_id", "step"]
    every = rollouts.groupby(index)["path"].agg(list)
    wrong = rollouts[rollouts["accuracy"] < 0.5].groupby(index)["path"].agg(list).to_dict()
    rows = []
    for before, after in pairwise(every.index):
        if before[0] != after[0] or not (
            apart[0] <= epochs[after[1]] - epochs[before[1]] <= apart[1]
        ):
            continue
        of_wrong = novelty(wrong.get(before, ()), wrong.get(after, ()))
        rows.append((before[1], *reversed(after), novelty(every[before], every[after]), of_wrong))
    return pd.DataFrame(rows, columns=["earlier", "later", "problem_id", "path", "wrong_path"])


def error_measures(rollouts: pd.DataFrame, habit: str) -> pd.DataFrame:
    """What the wrong rollouts of each step have in common, as shares; one row a ``step``.

    ``habit``: wrong rollouts that show this category; ``favourite``: that show the favourite habit
    of their prompt; ``same_category``, ``same_answer``: probability that two wrong rollouts of one
    prompt are alike (mean over prompts with at least two); ``path``: diversity of all rollouts.
    """
    wrong = rollouts[rollouts["accuracy"] < 0.5]
    out = within_step(rollouts).drop(columns="problem_id").groupby("step").mean()
    return pd.DataFrame({
        "habit": (wrong["category"] == habit).groupby(wrong["step"]).mean(),
        "favourite": (wrong["category"] == wrong["favourite"]).groupby(wrong["step"]).mean(),
        "same_category": 1 - out["wrong_category"],
        "same_answer": 1 - out["wrong_answer"],
        "path": out["path"],
    }).rename_axis("step").reset_index()  # fmt: skip


def diversity_scores(
    rollouts: Mapping[str, pd.DataFrame], epochs: Mapping[str, Mapping[int, float]]
) -> pd.DataFrame:
    """The two scores of Sec. 4.3 for methods of one seed: one row a method.

    ``within_path``, ``within_category`` (of wrong ones): mean diversity over the groups that every
    method has at the same step for the same prompt, from the second epoch on; ``across_path``,
    ``across_wrong_path``: mean novelty over a method's pairs; ``groups``, ``pairs``: how many.
    """
    index = ["step", "problem_id"]
    within = {name: within_step(frame).set_index(index) for name, frame in rollouts.items()}
    shared = set.intersection(*(set(frame.index) for frame in within.values()))
    common = sorted(key for key in shared if all(e[key[0]] > 1 for e in epochs.values()))
    rows = []
    for name, frame in within.items():
        pairs = across_step(rollouts[name], epochs[name])
        rows.append({
            "method": name, "groups": len(common), "pairs": len(pairs),
            "within_path": frame.loc[common, "path"].mean(),
            "within_category": frame.loc[common, "wrong_category"].mean(),
            "across_path": pairs["path"].mean(), "across_wrong_path": pairs["wrong_path"].mean(),
        })  # fmt: skip
    return pd.DataFrame(rows)
