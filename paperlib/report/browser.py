"""A rollout browser: one prompt's wrong rollouts as MEDS saw them (arXiv 2604.11297, Figs. 6, 7).

    rollouts = wrong_rollouts(run)                  # of all prompts, by replay of the stored run
    case = case_study(rollouts, choose_prompt(rollouts))
    to_html(case), to_markdown(case), browser_figure.case_figure(case)

What the model wrote is shown as text: it is escaped wherever it goes.
"""

from __future__ import annotations

import copy
from html import escape
from typing import Any

import numpy as np
import pandas as pd
from scipy.spatial.distance import cdist

from paperlib.errors import UserError
from paperlib.experiments.replay import stored_rollouts
from paperlib.experiments.store import Run
from paperlib.methods.clustering import NOISE, cluster
from paperlib.methods.meds import NOT_CLUSTERED, ClusterPenalty, features
from paperlib.methods.rollouts import call_term
from paperlib.report.render import escape_markdown
from paperlib.tasks.data import load_problems
from paperlib.tasks.grading import extract_answer
from paperlib.tasks.tiny.problems import TinyProblem
from paperlib.tasks.tiny.solutions import diagnose

LABELS = {NOISE: "noise", NOT_CLUSTERED: "none"}
_SHOWN = {
    "name": "rollout", "step": "step", "answer": "answer", "category": "true category",
    "cluster": "cluster then", "size": "size then", "penalty": "penalty", "final": "cluster at end",
    "nearest": "nearest past", "distance": "distance", "completion": "completion",
}  # fmt: skip


def wrong_rollouts(run: Run) -> pd.DataFrame:
    """All wrong rollouts of a run with a cluster penalty, which is computed again as it went.

    Returns:
        ``name`` (visit of the prompt and number in its group, "v2-07"), ``step``, ``visit``,
        ``problem_id``, ``completion``, ``answer`` (None: no final answer), ``category`` (the true
        one; "" outside the tiny world), ``cluster`` and ``size`` at that visit, ``penalty`` and
        ``logged`` (the penalty in the run's log), ``final`` (cluster among all wrong rollouts of
        the prompt; as for ``cluster``, -1 is noise and -2 in no clustering), ``layer_logits`` and
        ``feature`` (arrays, NaN without an answer).

    Raises:
        UserError: the run has no cluster penalty.
    """
    terms = [t for t in run.config.terms if isinstance(t, ClusterPenalty)]
    if not terms:
        raise UserError(f"{run.config.name} has no cluster penalty; browse a MEDS run")
    term, stored = copy.deepcopy(terms[0]), run.rollouts()
    penalties, labels, sizes = [], [], []
    for rollouts in stored_rollouts(run, stored):
        penalties.append(0.0 - call_term(term, rollouts))
        labels.append(term.last_labels)
        sizes.append(term.last_sizes)
    frame = stored.assign(
        penalty=np.concatenate(penalties), logged=0.0 - stored[f"reward/{term.name}"],
        cluster=np.concatenate(labels), size=np.concatenate(sizes),
        visit=stored.groupby("problem_id")["step"].rank("dense").astype(int),
        number=stored.groupby(["step", "problem_id"]).cumcount(),
        feature=list(features(np.stack(stored["layer_logits"].tolist()), term.settings)),
    )
    frame = frame[frame["accuracy"] < 0.5].reset_index(drop=True)
    frame["name"] = [f"v{v}-{n:02d}" for v, n in zip(frame["visit"], frame["number"], strict=True)]
    frame["answer"] = [extract_answer(text) for text in frame["completion"]]
    problems = {p.id: p for p in load_problems(run.config.dataset)}
    frame["category"] = [
        diagnose(problem, text) if isinstance(problem := problems[i], TinyProblem) else ""
        for i, text in zip(frame["problem_id"], frame["completion"], strict=True)
    ]
    frame["final"] = NOT_CLUSTERED
    for _, rows in frame[answered(frame)].groupby("problem_id"):
        frame.loc[rows.index, "final"] = cluster(np.stack(rows["feature"]), term.settings)
    columns = ["name", "step", "visit", "problem_id", "completion", "answer", "category", "cluster",
               "size", "penalty", "logged", "final", "layer_logits", "feature"]
    return frame[columns]


def answered(frame: pd.DataFrame) -> pd.Series:
    """Which rollouts have a final answer, and so a feature."""
    return frame["feature"].map(lambda vector: bool(np.isfinite(vector).all())).astype(bool)


def choose_prompt(rollouts: pd.DataFrame) -> str:
    """The prompt with the most wrong rollouts among those whose rollouts end up in at least two
    clusters (among all, if there is none); of several the first by id.

    Raises:
        UserError: no wrong rollout.
    """
    if rollouts.empty:
        raise UserError("there is no wrong rollout to browse")
    groups = rollouts.groupby("problem_id")
    counts = groups.size()  # sorted by id
    two = groups["final"].agg(lambda labels: labels[labels > NOISE].nunique()) >= 2
    return str((counts[two] if two.any() else counts).idxmax())


def case_study(rollouts: pd.DataFrame, problem_id: str) -> pd.DataFrame:
    """One prompt's rows of :func:`wrong_rollouts`, by cluster at the end, with their neighbours.

    Adds ``nearest``, the name of the closest rollout of an earlier visit (what the memory held
    when it was judged; "" if nothing), and the Euclidean ``distance`` to its feature.

    Raises:
        UserError: the prompt has no wrong rollout; names some that have.
    """
    case = rollouts[rollouts["problem_id"] == problem_id].reset_index(drop=True)
    if case.empty:
        known = ", ".join(sorted(rollouts["problem_id"].unique())[:5])
        raise UserError(f"no wrong rollout of problem {problem_id!r}; there are some of {known}")
    gaps = distances(case)
    earlier = case["visit"].to_numpy()[None, :] < case["visit"].to_numpy()[:, None]
    gaps = np.where(earlier & np.isfinite(gaps), gaps, np.inf)
    best, found = gaps.argmin(axis=1), np.isfinite(gaps).any(axis=1)
    names = case["name"].to_numpy()[best]
    case["nearest"] = np.where(found, names, "")
    case["distance"] = np.where(found, gaps.min(axis=1), np.nan)
    order = case["final"].where(case["final"] > NOISE, 10**6 - case["final"])  # clusters first
    return case.loc[order.sort_values(kind="stable").index].reset_index(drop=True)


def distances(case: pd.DataFrame) -> np.ndarray:
    """Euclidean distances ``[n, n]`` of the features, NaN where one has no answer."""
    vectors = np.stack(case["feature"])
    return cdist(vectors, vectors)


def pair_shares(rollouts: pd.DataFrame) -> pd.DataFrame:
    """How often two wrong rollouts of one prompt end up in one cluster, by what they share.

    Pairs of answered rollouts; noise is in no cluster. Columns ``same_answer``, ``same_category``,
    ``pairs``, ``together`` (share of them, NaN for none), a row for each of the four cases.
    """
    totals = np.zeros((2, 2, 2))  # same answer, same category, in one cluster
    for _, rows in rollouts[answered(rollouts)].groupby("problem_id"):
        upper = np.triu_indices(len(rows), 1)

        def same(column: str, rows: pd.DataFrame = rows, upper: Any = upper) -> np.ndarray:
            values = rows[column].to_numpy()
            return (values[:, None] == values)[upper]

        final = rows["final"].to_numpy()
        together = same("final") & (final > NOISE)[upper[0]]
        cells = same("answer").astype(int), same("category").astype(int), together.astype(int)
        np.add.at(totals, cells, 1)
    lines = []
    for answer in (1, 0):
        for category in (1, 0):
            apart, joined = totals[answer, category]
            pairs = int(apart + joined)
            share = joined / pairs if pairs else np.nan
            lines.append((bool(answer), bool(category), pairs, share))
    return pd.DataFrame(lines, columns=["same_answer", "same_category", "pairs", "together"])


def clusters(case: pd.DataFrame) -> pd.DataFrame:
    """One line a cluster at the end: how many rollouts, of which answers, categories, visits."""

    def counted(values: pd.Series) -> str:
        return ", ".join(f"{v} x{n}" for v, n in values.fillna("none").value_counts().items())

    lines = [
        {"cluster at end": LABELS.get(label, str(label)), "rollouts": len(rows),
         "visits": ", ".join(map(str, sorted(rows["visit"].unique()))),
         "answers": counted(rows["answer"]), "true categories": counted(rows["category"]),
         "mean penalty": f"{rows['penalty'].mean():.3f}"}
        for label, rows in case.groupby("final", sort=False)
    ]  # fmt: skip
    return pd.DataFrame(lines)


def _texts(case: pd.DataFrame) -> pd.DataFrame:
    """The shown columns as plain text."""
    shown = case.assign(
        answer=case["answer"].fillna("none"),
        cluster=[LABELS.get(label, str(label)) for label in case["cluster"]],
        final=[LABELS.get(label, str(label)) for label in case["final"]],
        penalty=case["penalty"].map("{:.3f}".format),
        distance=[f"{d:.3f}" if np.isfinite(d) else "" for d in case["distance"]],
    )
    return shown[list(_SHOWN)].rename(columns=_SHOWN).astype(str)


def to_html(case: pd.DataFrame) -> str:
    """A table for a notebook; completions keep their lines. Everything is escaped."""
    table = _texts(case)
    head = "".join(f"<th>{escape(name)}</th>" for name in table)
    # in <pre>, where the notebook neither typesets mathematics nor folds white space
    body = "".join(
        "<tr>" + "".join(f"<td><pre>{escape(text)}</pre></td>" for text in row) + "</tr>\n"
        for row in table.itertuples(index=False)
    )
    return f"<table>\n<tr>{head}</tr>\n{body}</table>"


def to_markdown(case: pd.DataFrame, per_cluster: int = 3) -> str:
    """Two tables: the clusters, and of each the first rollouts; a completion is one line."""
    first = case.groupby("final", sort=False).head(per_cluster)
    rows = _texts(first)
    rows["completion"] = rows["completion"].str.strip().str.replace("\n", "; ")
    note = f"{len(first)} of {len(case)} wrong rollouts: the first {per_cluster} of each cluster."
    return f"{_pipe_table(clusters(case))}\n{note}\n\n{_pipe_table(rows)}"


def _pipe_table(frame: pd.DataFrame) -> str:
    rows = [list(frame), ["---"] * frame.shape[1]]
    rows += [[escape_markdown(str(text)) for text in row] for row in frame.itertuples(index=False)]
    return "".join("| " + " | ".join(row) + " |\n" for row in rows)
