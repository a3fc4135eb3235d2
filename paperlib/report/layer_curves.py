"""MEDS, Fig. 3: layer logits of one prompt's wrong rollouts, and distances over all prompts.

Rollouts come diagnosed (paperlib.evaluation.exact_diversity), so that every one's true error
category is known.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from paperlib.evaluation.passk import bootstrap_interval
from paperlib.methods.meds import Meds, features
from paperlib.report.style import GREY, SERIES, panels, plain

KINDS = {
    "all": "all", "distinct": "no copies", "one answer": "one answer,\ntwo paths",
    "other token": "other\nfirst digit",
}  # fmt: skip


def pair_distances(wrong: pd.DataFrame, settings: Meds) -> pd.DataFrame:
    """Mean distances between the wrong rollouts of each prompt, by kind of pair.

    Args:
        wrong: diagnosed rollouts with a final answer and their ``layer_logits``.

    Returns:
        ``problem_id``, ``category`` and ``kind``, both as below; ``pairs``, their number;
        ``feature`` (Euclidean distance of the features) and ``1``, ``2``, ... (absolute difference
        of the layer's logit). One row per category and kind there is:

        - ``category``: "same" or "other", of the two.
        - ``kind``: "all" pairs; "distinct", without copies, i.e. unless path and answer are the
          same, since copies are alike whatever logits tell; "one answer" by two paths; "other
          token", another first character of the answer, whose logits these are.
    """
    rows = []
    for problem_id, group in wrong.groupby("problem_id", sort=True):
        logits = np.stack(group["layer_logits"].tolist()).astype(float)
        vectors, (i, j) = features(logits, settings), np.triu_indices(len(group), 1)
        far = np.linalg.norm(vectors[i] - vectors[j], axis=1)
        layers = np.abs(logits[i] - logits[j])
        keys = group[["category", "answer", "path"]].assign(token=group["answer"].str[0])
        same = {of: column.to_numpy()[i] == column.to_numpy()[j] for of, column in keys.items()}
        kinds = {
            "all": np.ones(len(far), dtype=bool), "distinct": ~(same["path"] & same["answer"]),
            "one answer": same["answer"] & ~same["path"], "other token": ~same["token"],
        }  # fmt: skip
        for category, of_category in (("same", same["category"]), ("other", ~same["category"])):
            for kind, of_kind in kinds.items():
                chosen = of_category & of_kind
                if chosen.any():
                    means = dict(enumerate(layers[chosen].mean(0), start=1))
                    rows.append({"problem_id": problem_id, "category": category, "kind": kind,
                                 "pairs": chosen.sum(), "feature": far[chosen].mean(), **means})
    return pd.DataFrame(rows)


def closer(distances: pd.DataFrame, kind: str) -> float | None:
    """By how much, in percent, features of one category are closer (negative) than of two.

    Over the prompts that have both kinds: ratio of the mean distances; None if there are none.
    """
    table = distances[distances["kind"] == kind].pivot_table(
        index="problem_id", columns="category", values="feature")
    if not {"same", "other"} <= set(table):
        return None
    means = table.dropna().mean()
    return float(100 * (means["same"] / means["other"] - 1)) if len(table.dropna()) else None


def later_spread(distances: pd.DataFrame) -> float:
    """By how much, in percent, two wrong rollouts of a prompt differ more (positive) in a layer of
    the later half than in one of the first half; mean over prompts of all their pairs."""
    rows = distances[distances["kind"] == "all"]
    layers = [name for name in rows if isinstance(name, int)]
    pairs = rows[layers].mul(rows["pairs"], axis=0).groupby(rows["problem_id"]).sum()
    means = pairs.div(rows.groupby("problem_id")["pairs"].sum(), axis=0).mean()
    half = len(layers) // 2
    return float(100 * (means.iloc[half:].mean() / means.iloc[:half].mean() - 1))


def example_prompt(wrong: pd.DataFrame, least: int = 5) -> str:
    """The prompt with the most wrong rollouts among those with the most categories that hold at
    least ``least`` of them; the rule does not look at any logit."""
    counts = wrong.groupby(["problem_id", "category"]).size()
    several = (counts >= least).groupby("problem_id").sum()
    total = counts.groupby("problem_id").sum()
    return max(sorted(total.index), key=lambda problem: (several[problem], total[problem]))


def layer_logits(example: pd.DataFrame, distances: pd.DataFrame, kept: int) -> Figure:
    """Fig. 3. ``example``: wrong rollouts of one prompt; ``distances``: as :func:`pair_distances`,
    of any number of runs; ``kept``: how many of the last layers make the feature."""
    figure, axes = panels(2, 2)
    logits = np.stack(example["layer_logits"].tolist()).astype(float)
    layers = np.arange(1, logits.shape[1] + 1)
    names = example["category"].value_counts().index[:4]
    for ax, values in ((axes[0, 0], logits), (axes[0, 1], logits - logits.mean(0))):
        for name, hue in zip(names, SERIES, strict=False):
            rows = values[(example["category"] == name).to_numpy()]
            ax.plot(layers, rows.T, color=hue, lw=0.6, alpha=0.25)
            label = f"{name.replace('_', ' ')} ({len(rows)})"
            ax.plot(layers, rows.mean(0), color=hue, lw=2.2, label=label)
        ax.set(xlabel="layer", xticks=layers, ylabel="logit of the answer's first token")
    axes[0, 0].set_title(f"{plain(example['problem_id'].iloc[0])}: wrong rollouts", fontsize=9)
    axes[0, 1].set(ylabel="difference from the mean curve")
    axes[0, 1].set_title("the same, mean over rollouts taken off", fontsize=9)
    axes[0, 0].legend(frameon=False, fontsize=7)
    looks = {"same": (SERIES[0], "one category"), "other": (SERIES[1], "two categories")}
    for category, (hue, label) in looks.items():
        of_category = distances[distances["category"] == category]
        means = _over_prompts(of_category[of_category["kind"] == "distinct"], list(layers))
        axes[1, 0].plot(layers, means[:, 0], color=hue, label=label, marker="o", ms=3)
        axes[1, 0].fill_between(layers, means[:, 1], means[:, 2], color=hue, alpha=0.2, lw=0)
        for place, kind in enumerate(KINDS):
            rows = of_category[of_category["kind"] == kind]
            if len(rows):
                mean, low, high = _over_prompts(rows, ["feature"])[0]
                axes[1, 1].bar(place + (0.2 if category == "other" else -0.2), mean, 0.36,
                               color=hue, yerr=[[mean - low], [high - mean]], capsize=3)
    axes[1, 0].axvspan(layers[-kept] - 0.3, layers[-1] + 0.3, color=GREY, alpha=0.12, lw=0)
    axes[1, 0].set(xlabel="layer (shaded: in the feature)", xticks=layers, ylim=(0, None),
                   ylabel="mean |difference| of two logits")
    axes[1, 0].legend(frameon=False, fontsize=8, title="distinct wrong rollouts, of",
                      title_fontsize=8)
    axes[1, 1].set_xticks(range(len(KINDS)), list(KINDS.values()), fontsize=7)
    axes[1, 1].set(ylabel="distance of the features", xlabel="pairs (colours as on the left)")
    for ax in axes[1]:
        ax.set_title("mean over prompts, 95 % bootstrap over prompts", fontsize=9)
    return figure


def _over_prompts(rows: pd.DataFrame, columns: list[Any]) -> np.ndarray:
    """``[columns, 3]``: mean over prompts (each the mean of its runs) and its bootstrap limits."""
    prompts = rows.groupby("problem_id")[columns].mean()
    return np.array([(prompts[c].mean(), *bootstrap_interval(prompts[c])) for c in columns])
