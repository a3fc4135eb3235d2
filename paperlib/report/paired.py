"""Runs against each other: what each is worth, differences paired by seed, counts of collapses."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from scipy import stats

from paperlib.evaluation.collapse import KINDS, MIN_STEPS, diagnose_run, verdict
from paperlib.evaluation.diversity import (
    pair_diversity,
    pairwise_diversity,
    solution_path,
    tfidf_vectors,
)
from paperlib.evaluation.settings import EvalSettings
from paperlib.experiments.store import Run
from paperlib.report.difference import Difference, Spread, difference, pooled_spread
from paperlib.report.scores import last_result, score
from paperlib.report.style import INK, color
from paperlib.report.verdict import ABSENT, FAILS, HOLDS, UNTOLD
from paperlib.tasks.grading import extract_answer

SECONDS = ("seconds/sample", "seconds/terms", "seconds/update")


def measures(run: Run, settings: EvalSettings) -> dict[str, float] | None:
    """What one run is worth at its last checkpoint; None while run or evaluation is missing.

    ``pass@k`` in percent, averaged over levels; ``TF-IDF diversity`` and ``path diversity`` (share
    of pairs of a problem's responses that write other equations), x 100; ``truncated``, %;
    ``length``, tokens; ``same answer``, %: how often two wrong answers to a problem are the same
    (NaN if no problem has two); of the training (Base: NaN) ``collapsed``, 100 or 0, NaN for too
    short a run (:mod:`paperlib.evaluation.collapse`), and ``seconds per step`` without checkpoints.
    """
    result = last_result(run, settings)
    if result is None:
        return None
    problems, n = result["problems"], settings.samples
    texts = [text for p in problems for text in p["responses"]]
    vectors = tfidf_vectors(texts).reshape(len(problems), n, -1)
    paths = [pair_diversity([solution_path(t) for t in p["responses"]]) for p in problems]
    metrics = run.metrics()
    fate = verdict(metrics)
    return {
        **{f"pass@{k}": score(result, k) for k in sorted({1, min(4, n), n})},
        "TF-IDF diversity": float(pairwise_diversity(vectors).mean()),
        "path diversity": 100 * float(np.mean(paths)),
        "truncated": 100 * sum(p["truncated"] for p in problems) / len(texts),
        "length": float(np.mean([p["mean_length"] for p in problems])),
        "same answer": repeated(result),
        "collapsed": np.nan if fate == "too short" else 100.0 * (fate == "collapsed"),
        "seconds per step": metrics[list(SECONDS)].sum(axis=1).mean() if len(metrics) else np.nan,
    }


def repeated(result: dict[str, Any]) -> float:
    """How often two wrong answers to a problem are the same, in percent, averaged over the problems
    of an evaluation that have two; NaN if none has."""
    shares = []
    for problem in result["problems"]:
        graded = zip(problem["responses"], problem["grades"], strict=True)
        answers = [extract_answer(text) for text, right in graded if not right]
        shares.append(1 - pair_diversity([answer for answer in answers if answer is not None]))
    return 100 * float(pd.Series(shares, dtype=float).mean())  # leaves NaN out


def measure_frame(runs: Mapping[str, Sequence[Run]], settings: EvalSettings) -> pd.DataFrame:
    """``method``, ``seed`` and the :func:`measures` of every run that has them, a row a run."""
    return pd.DataFrame([
        {"method": method, "seed": run.config.seed, **found}
        for method, of_method in runs.items()
        for run in of_method
        if (found := measures(run, settings)) is not None
    ])


def _both(frame: pd.DataFrame, method: str, rival: str, metric: str) -> np.ndarray:
    """A metric of two methods, ``[2, seeds]``, for the seeds that have both."""
    table = frame.pivot(index="seed", columns="method", values=metric)
    return table.reindex(columns=[method, rival]).dropna().to_numpy(dtype=float).T


def family_spread(frame: pd.DataFrame, metric: str) -> Spread | None:
    """The spread of a paired difference in a metric, pooled over all methods of ``frame`` that have
    more than one seed."""
    table = frame.pivot(index="method", columns="seed", values=metric)
    return pooled_spread(table[table.notna().sum(axis=1) > 1].to_numpy(dtype=float))


def gap(frame: pd.DataFrame, method: str, rival: str, metric: str, **how: Any) -> Difference | None:
    """``method - rival`` in a metric, paired by seed, with the spread of all methods of ``frame``;
    None if no seed has both. ``how`` goes to :func:`paperlib.report.difference.difference`."""
    if "spread" not in how:
        how["spread"] = family_spread(frame, metric)
    return difference(f"{method} - {rival}, {metric}", *_both(frame, method, rival, metric), **how)


def matters(found: Difference | None) -> str:
    """The verdict on "this makes a difference": holds where the interval excludes 0, in either
    direction; one that does not shows no absence of a difference."""
    return UNTOLD if found is None or found.verdict == "cannot be told" else HOLDS


def holm(p: Sequence[float]) -> np.ndarray:
    """Holm's step-down adjusted p-values ``[n]``; NaN stays NaN and is not counted."""
    values = np.asarray(p, dtype=float)
    order = np.argsort(values)[: np.isfinite(values).sum()]
    adjusted = np.full(len(values), np.nan)
    factors = len(order) - np.arange(len(order))
    adjusted[order] = np.minimum(np.maximum.accumulate(values[order] * factors), 1.0)
    return adjusted


def compare(
    frame: pd.DataFrame, pairs: Iterable[tuple[str, str]], metrics: Iterable[str]
) -> pd.DataFrame:
    """Every pair in every metric: ``method``, ``rival``, ``metric``, ``mean``, ``low``, ``high``
    (95 % t-interval with the spread of all methods of ``frame``, NaN for one seed), ``seeds``,
    ``p`` of the same test (NaN for one seed, and without any spread) and ``holm``, corrected over
    all rows."""
    rows = []
    for metric in metrics:
        spread = family_spread(frame, metric)
        for method, rival in pairs:
            found = gap(frame, method, rival, metric, spread=spread)
            if found is None:
                continue
            p = np.nan
            if spread and found.seeds > 1:
                t = found.mean / (spread.sd / np.sqrt(found.seeds))
                p = 2 * stats.t.sf(abs(t), spread.df)
            rows.append((method, rival, metric, found.mean, found.low, found.high, found.seeds, p))
    columns = ["method", "rival", "metric", "mean", "low", "high", "seeds", "p"]
    data = pd.DataFrame(rows, columns=columns).astype({"low": float, "high": float, "p": float})
    return data.assign(holm=holm(data["p"]))


def forest(axes: Axes, data: pd.DataFrame, xlabel: str, *, names: bool = True) -> None:
    """Differences of :func:`compare` as points with their intervals, the first on top.

    Filled: the interval excludes 0 after Holm's correction too; hollow: it does not.
    """
    for y, row in enumerate(data.itertuples()):
        look = {"color": color(row.method), "markersize": 6, "markeredgewidth": 1.6}
        look |= {} if row.holm < 0.05 else {"markerfacecolor": "white"}
        axes.plot([row.low, row.high], [y, y], color=look["color"], linewidth=1.8)
        axes.plot(row.mean, y, "o", **look)
    axes.axvline(0, color=INK, linewidth=0.8)
    labels = [f"{r.method} − {r.rival}" for r in data.itertuples()]
    axes.set(xlabel=xlabel, ylim=(len(data) - 0.4, -0.6))
    axes.set_yticks(range(len(data)), labels if names else [""] * len(data), fontsize=9)


def count(runs: Sequence[Run], kinds: Sequence[str] = KINDS) -> tuple[int, int]:
    """In how many runs a collapse of ``kinds`` occurs, and how many are complete and long enough.
    """
    told = [run.metrics() for run in runs if run.status() == "complete"]
    told = [metrics for metrics in told if len(metrics) >= MIN_STEPS]
    return sum(any(c.kind in kinds for c in diagnose_run(m)) for m in told), len(told)


def tally(who: str, counted: tuple[int, int]) -> str:
    """ "R1: 1 of 3 runs collapse"; runs that are missing or too short are not counted."""
    if not counted[1]:
        return f"{who}: no run has the {MIN_STEPS} steps a verdict takes"
    return f"{who}: {counted[0]} of {counted[1]} runs collapse"


def occurs(counted: tuple[int, int]) -> str:
    """The verdict on "such runs collapse": in one at least. Where none of two runs or more does,
    the paper's condition is absent."""
    collapsed, told = counted
    return HOLDS if collapsed else ABSENT if told >= 2 else UNTOLD


def never(counted: tuple[int, int]) -> str:
    """The verdict on "such runs do not collapse": refuted by one. It takes nine runs to hold: none
    of nine leaves rates up to 28 % (95 %), none of three up to 63 %."""
    return FAILS if counted[0] else HOLDS if counted[1] >= 9 else UNTOLD


def prevented(counted: tuple[int, int], rivals: tuple[int, int]) -> str:
    """The verdict on "such runs never collapse, the rivals do". One collapse refutes it; it holds
    where the counts differ by Fisher's exact test; where the rivals do not collapse either, there
    was nothing to prevent."""
    if counted[0]:
        return FAILS
    if not rivals[0]:
        return occurs(rivals)
    table = [[counted[0], counted[1]], [rivals[0], rivals[1] - rivals[0]]]
    return HOLDS if stats.fisher_exact(table).pvalue < 0.05 else UNTOLD
