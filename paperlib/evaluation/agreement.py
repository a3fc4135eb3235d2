"""Do two groupings of the same rollouts, clusters and error categories, say the same?

The paper's measure (MEDS, Sec. 4.5) is the share of pairs of wrong rollouts on which "same
category" and "same cluster" coincide (:func:`pair_agreement`). Two mostly-different groupings
coincide on most pairs by chance, so three figures stand beside it: the agreement that shuffled
clusters would reach (:func:`chance`), Cohen's kappa on the pairs, and the adjusted Rand index,
which is that kappa within one prompt (Warrens 2008).

Pairs are formed within a prompt, for clusters are: no two prompts share one. Label numbers carry
no meaning, and renumbering changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from paperlib.errors import UserError, check_choice
from paperlib.methods.clustering import NOISE

PAIRS = ["both", "category", "cluster", "neither"]  # what the two rollouts of a pair share
_BOTH = ("category", "cluster")


def pair_counts(
    categories: Sequence[str], clusters: Sequence[int], prompts: Sequence[str], *,
    noise: str = "alone",
) -> pd.DataFrame:
    """How many pairs of rollouts of a prompt share category and cluster; one row a prompt.

    Args:
        categories, clusters, prompts: one entry per rollout.
        noise: what cluster label -1 means (ours; the paper does not say): ``alone``, every noise
            point is a cluster of its own, or ``together``, noise is one more cluster.

    Returns:
        Columns :data:`PAIRS`, unordered pairs, indexed by prompt; and ``ari``, the adjusted Rand
        index as scikit-learn has it, but NaN where categories cannot tell (all the same, or all
        different). Prompts with a single rollout have no pair and no row.

    Raises:
        UserError: unknown ``noise``, or sequences of different lengths.
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
    frame = pd.DataFrame({
        "prompt": np.asarray(prompts), "category": np.asarray(categories), "cluster": labels,
    })  # fmt: skip

    def pairs(*same: str) -> pd.Series:
        sizes = frame.groupby(["prompt", *same], sort=False).size()
        return (sizes * (sizes - 1) // 2).groupby(level="prompt", sort=False).sum()

    total, category, cluster, both = pairs(), pairs("category"), pairs("cluster"), pairs(*_BOTH)
    counts = pd.DataFrame({
        "both": both, "category": category - both, "cluster": cluster - both,
        "neither": total - category - cluster + both,
    })[total > 0]  # fmt: skip
    telling = (category > 0) & (category < total)
    return counts.assign(ari=np.where(telling[counts.index], pair_kappa(counts), np.nan))


def pair_agreement(pairs: np.ndarray) -> np.ndarray:
    """Share of pairs on which both groupings coincide (MEDS, Sec. 4.5); NaN without pairs.

    Args:
        pairs: ``[..., 4]`` in the order of :data:`PAIRS`.
    """
    both, category, cluster, neither = np.moveaxis(np.asarray(pairs, dtype=float), -1, 0)
    with np.errstate(invalid="ignore"):
        return (both + neither) / (both + category + cluster + neither)


def pair_kappa(pairs: np.ndarray) -> np.ndarray:
    """Cohen's kappa of "same category" and "same cluster" over pairs ``[..., 4]``.

    1 for equal groupings, 0 at chance; NaN where both groupings say the same of every pair. Within
    one prompt it equals the adjusted Rand index.
    """
    both, category, cluster, neither = np.moveaxis(np.asarray(pairs, dtype=float), -1, 0)
    chance_product = (both + category) * (category + neither)
    chance_product = chance_product + (both + cluster) * (cluster + neither)
    with np.errstate(invalid="ignore"):
        return 2 * (both * neither - category * cluster) / chance_product


def chance(counts: pd.DataFrame) -> pd.DataFrame:
    """The pair counts to expect if the clusters of each prompt were shuffled among its rollouts.

    Exact: the cluster sizes stay, so each pair shares a cluster as often as any other.
    """
    both, category, cluster, neither = counts[PAIRS].to_numpy(dtype=float).T
    total = both + category + cluster + neither
    expected = (both + category) * (both + cluster) / total
    columns = [expected, both + category - expected, both + cluster - expected]
    columns.append(total - sum(columns))
    return pd.DataFrame(np.stack(columns, axis=1), index=counts.index, columns=PAIRS)


def summarise(
    counts: pd.DataFrame, *, draws: int = 2000, seed: int = 0, level: float = 0.95
) -> pd.DataFrame:
    """Rows ``agreement``, ``kappa``, ``ari``, ``chance``; columns ``value``, ``low``, ``high``.

    Agreement, chance (of agreement) and kappa over the pairs of all prompts; ari is the mean of
    the prompts that have one. The interval is a percentile bootstrap over prompts; a prompt that
    comes in several rows (seeds) is drawn as a whole. All NaN without pairs.

    Args:
        counts: of :func:`pair_counts`; several may be concatenated.
    """
    prompt, names = pd.factorize(counts.index)
    if not len(names):
        empty = ["agreement", "kappa", "ari", "chance"]
        return pd.DataFrame(np.nan, index=empty, columns=["value", "low", "high"])
    pairs, expected = counts[PAIRS].to_numpy(dtype=float), chance(counts).to_numpy()
    ari = counts["ari"].to_numpy()
    telling = np.isfinite(ari)
    # how often each prompt is drawn; the first line is the data itself
    rng = np.random.default_rng(seed)
    drawn = rng.multinomial(len(names), np.full(len(names), 1 / len(names)), size=draws)
    times = np.concatenate([np.ones((1, len(names)), dtype=int), drawn])[:, prompt]
    with np.errstate(invalid="ignore"):
        values = {
            "agreement": pair_agreement(times @ pairs),
            "kappa": pair_kappa(times @ pairs),
            "ari": (times[:, telling] @ ari[telling]) / times[:, telling].sum(axis=1),
            "chance": pair_agreement(times @ expected),
        }
    tails = ((1 - level) / 2, (1 + level) / 2)
    rows = {}
    for name, (value, *resampled) in values.items():
        known = np.array(resampled)[np.isfinite(resampled)]
        low, high = np.quantile(known, tails) if len(known) else (np.nan, np.nan)
        rows[name] = [value, low, high]
    return pd.DataFrame.from_dict(rows, orient="index", columns=["value", "low", "high"])


def sampled_agreement(
    categories: Sequence[str], clusters: Sequence[int], prompts: Sequence[str], *,
    size: int = 800, seed: int = 0,
) -> float:
    """Agreement over all pairs of ``size`` rollouts drawn without return, whatever their prompts.

    The paper's words, taken literally (Sec. 4.5: 800 wrong rollouts, pairs of them); two prompts
    never share a cluster, noise points are alone. With many prompts nearly all pairs cross prompts
    and the number says little about the clusters: it is not the one to compare variants by. All
    rollouts are taken if there are fewer.
    """
    keys = pd.Series(list(zip(prompts, clusters, strict=True)), dtype=object)
    everywhere = pd.factorize(keys)[0]
    everywhere[np.asarray(clusters) == NOISE] = NOISE
    rng = np.random.default_rng(seed)
    chosen = rng.permutation(len(keys))[:size]
    everything = pair_counts(
        np.asarray(categories)[chosen], everywhere[chosen], np.zeros(len(chosen), dtype=int)
    )
    return float(pair_agreement(everything[PAIRS].sum().to_numpy()))
