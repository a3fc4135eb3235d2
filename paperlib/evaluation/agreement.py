"""Do two groupings of the same rollouts, clusters and error categories, say the same?

The paper's measure (MEDS, Sec. 4.5) is the share of pairs of wrong rollouts on which "same
category" and "same cluster" coincide. Two mostly-different groupings coincide on most pairs by
chance, so three figures stand beside it: the agreement that shuffled clusters would reach, Cohen's
kappa on the pairs, and the adjusted Rand index, which is that kappa within one prompt (Warrens
2008). Pairs are formed within a prompt, for clusters are: no two prompts share one.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from sklearn.metrics.cluster import pair_confusion_matrix

from paperlib.errors import UserError, check_choice
from paperlib.methods.clustering import NOISE

PAIRS = ["both", "category", "cluster", "neither"]  # what the two rollouts of a pair share


def pair_counts(
    categories: Sequence[str], clusters: Sequence[int], prompts: Sequence[str], *,
    noise: str = "alone",
) -> pd.DataFrame:
    """How many pairs of rollouts of a prompt share category and cluster; one row a prompt with two
    rollouts or more.

    Columns :data:`PAIRS`, unordered pairs, indexed by prompt; ``expected``, how many would coincide
    if the prompt's clusters were shuffled among its rollouts (exact: the mean over all shuffles);
    and ``ari``, the adjusted Rand index, NaN where categories cannot tell (all the same, or all
    different). ``noise`` says what cluster label -1 means (ours; the paper does not say):
    ``alone``, every noise point is a cluster of its own, or ``together``, one more cluster.
    """
    check_choice("noise", noise, ("alone", "together"))
    if not len(categories) == len(clusters) == len(prompts):
        raise UserError(
            f"{len(categories)} categories, {len(clusters)} clusters and {len(prompts)} prompts; "
            "give one of each per rollout"
        )
    labels = np.array(clusters, dtype=np.int64)
    if noise == "alone":
        lonely = np.flatnonzero(labels == NOISE)
        labels[lonely] = labels.max(initial=0) + 1 + np.arange(len(lonely))
    frame = pd.DataFrame({"category": np.asarray(categories), "cluster": labels})
    rows = {}
    for prompt, group in frame.groupby(np.asarray(prompts), sort=False):
        if len(group) < 2:
            continue
        # scikit-learn counts each pair twice
        table = pair_confusion_matrix(group["category"], group["cluster"]) // 2
        (neither, cluster), (category, both) = table
        total, alike, together = table.sum(), both + category, both + cluster
        # the cluster sizes stay, so each pair shares a cluster as often as any other
        expected = total - alike - together + 2 * alike * together / total
        ari = _kappa([both, category, cluster, neither]) if 0 < alike < total else np.nan
        rows[prompt] = both, category, cluster, neither, expected, ari
    counts = pd.DataFrame.from_dict(rows, orient="index", columns=[*PAIRS, "expected", "ari"])
    return counts.rename_axis("prompt").astype({"expected": float, "ari": float})


def _kappa(pairs: ArrayLike) -> np.ndarray:
    """Cohen's kappa of "same category" and "same cluster" over pairs ``[4, ...]``; NaN where both
    say the same of every pair."""
    both, category, cluster, neither = np.asarray(pairs, dtype=float)
    below = (both + category) * (category + neither) + (both + cluster) * (cluster + neither)
    with np.errstate(invalid="ignore"):
        return 2 * (both * neither - category * cluster) / below


def agreement(counts: pd.DataFrame, draws: int = 2000) -> pd.DataFrame:
    """Rows ``agreement``, ``kappa``, ``ari``, ``chance``; columns ``value``, ``low``, ``high``.

    Of the ``counts`` of :func:`pair_counts`; several may be concatenated. Agreement (MEDS, Sec.
    4.5), its chance and kappa are those of the pairs of all prompts; ari is the mean of the prompts
    that have one. NaN where undefined. The 95 % interval is a percentile bootstrap over prompts; a
    prompt that comes in several rows (seeds) is drawn as a whole.
    """
    prompt, names = pd.factorize(counts.index)
    # how often each prompt is drawn; the first line is the data itself
    times = np.ones((1, len(names)), dtype=int)
    if len(names):
        rng, shares = np.random.default_rng(0), np.full(len(names), 1 / len(names))
        times = np.concatenate([times, rng.multinomial(len(names), shares, size=draws)])
    times = times[:, prompt]
    pairs, telling = times @ counts[PAIRS].to_numpy(float), counts["ari"].notna().to_numpy()
    with np.errstate(invalid="ignore"):
        values = pd.DataFrame({
            "agreement": (pairs[:, 0] + pairs[:, 3]) / pairs.sum(axis=1),
            "kappa": _kappa(pairs.T),
            "ari": times @ counts["ari"].fillna(0).to_numpy() / times[:, telling].sum(axis=1),
            "chance": times @ counts["expected"].to_numpy() / pairs.sum(axis=1),
        })  # fmt: skip
    drawn = values[1:]
    return pd.DataFrame({
        "value": values.iloc[0], "low": drawn.quantile(0.025), "high": drawn.quantile(0.975),
    })  # fmt: skip
