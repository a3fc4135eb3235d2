"""Diversity of rollouts in the tiny world, counted exactly where the paper asks an LLM.

MEDS (Sec. 4.3) has a language model score how diverse the rollouts of a prompt at one step are,
and how much later ones add to earlier ones. Here every rollout's solution path and every wrong
one's error category are known, so both become shares: no LLM, no prompt, no sampling of groups.

A group is all rollouts of a prompt at a step. Dynamic sampling drops groups that are all right or
all wrong, and they are not stored: training rollouts speak of mixed groups alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence

import pandas as pd

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
    """Share of the later group's members whose label no member of the earlier group has; NaN if
    either group is empty."""
    if not len(earlier) or not len(later):
        return float("nan")
    seen = set(earlier)
    return sum(label not in seen for label in later) / len(later)


def diagnosed(rollouts: pd.DataFrame) -> pd.DataFrame:
    """Rollouts (``problem_id`` and ``completion``, as ``Run.rollouts``) with what they did:
    ``category`` (see ``diagnose``), ``favourite`` (of the prompt's thing), ``path`` and ``answer``
    (text, "" if there is none)."""
    problems = [tiny_problem(problem_id) for problem_id in rollouts["problem_id"]]
    texts = rollouts["completion"].tolist()
    return rollouts.assign(
        category=[diagnose(p, text) for p, text in zip(problems, texts, strict=True)],
        favourite=[FAVOURITE[problem.subject] for problem in problems],
        path=[solution_path(text) for text in texts],
        answer=[extract_answer(text) or "" for text in texts],
    )
