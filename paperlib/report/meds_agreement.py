"""MEDS Fig. 5: how diverse the stored features are, and whether clusters follow the errors.

Everything comes from stored rollouts: the clusters of every feature variant are recomputed on the
same wrong rollouts, those of the MEDS runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from paperlib.errors import UserError
from paperlib.evaluation.agreement import (
    PAIRS,
    pair_agreement,
    pair_counts,
    sampled_agreement,
    summarise,
)
from paperlib.evaluation.eigen import sliding_eigen_ratio, top1_eigen_ratio
from paperlib.experiments.store import Run
from paperlib.experiments.variants import FEATURES, cluster_term, feature_settings
from paperlib.methods.clustering import NOISE, cluster
from paperlib.methods.meds import Meds, features
from paperlib.report.cells import Cell, Column, Row, Table
from paperlib.report.published import meds_agreement, meds_table2
from paperlib.report.style import GREY, INK, SERIES, color, legend_below, mean_band, panels
from paperlib.report.table1 import provenance
from paperlib.tasks.grading import extract_answer

ANSWER = "same answer string"  # a grouping without any model: the baseline of the variants
MARKERS = "osD^v"  # of the variants
Annotate = Callable[[pd.DataFrame], Sequence[str | None]]
MEASURES = {
    "agreement": "agreement (%)", "chance": "chance (%)", "kappa": "kappa", "ari": "ARI",
    "together": "noise as one cluster (%)", "sampled": "all pairs of 800 (%)",
}  # fmt: skip


def wrong_rollouts(run: Run) -> pd.DataFrame:
    """A run's wrong rollouts that have a final answer, of all steps: what MEDS stores.

    Raises:
        UserError: the run recorded no layer logits.
    """
    stored = run.rollouts()
    if "layer_logits" not in stored:
        raise UserError(f"{run.config.name} recorded no layer logits; take a MEDS run")
    answered = np.isfinite(np.stack(stored["layer_logits"].tolist())).all(axis=1)
    wrong = stored["accuracy"].to_numpy() < 0.5
    return stored[wrong & answered].reset_index(drop=True)


def vectors(rollouts: pd.DataFrame, settings: Meds) -> np.ndarray:
    """The feature vectors ``[n, d]`` of :func:`wrong_rollouts`, which must not be empty."""
    return features(np.stack(rollouts["layer_logits"].tolist()), settings)


def cluster_labels(rollouts: pd.DataFrame, settings: Meds) -> np.ndarray:
    """Labels ``[n]`` of all of a prompt's rollouts clustered at once, numbered within a prompt."""
    labels, points = np.full(len(rollouts), NOISE), vectors(rollouts, settings)
    for rows in rollouts.groupby("problem_id").indices.values():
        labels[rows] = cluster(points[rows], settings)
    return labels


def diagnoses(rollouts: pd.DataFrame) -> list[str | None]:
    """The true error categories of tiny-world rollouts, exact: an annotator without an LLM."""
    from paperlib.tasks.tiny.problems import tiny_problem
    from paperlib.tasks.tiny.solutions import diagnose

    pairs = zip(rollouts["problem_id"], rollouts["completion"], strict=True)
    return [diagnose(tiny_problem(problem), completion) for problem, completion in pairs]


def agreement_counts(runs: Sequence[Run], annotate: Annotate = diagnoses) -> pd.DataFrame:
    """:func:`~paperlib.evaluation.agreement.pair_counts` of every variant on the rollouts of
    ``runs`` (MEDS runs, one a seed), one row a prompt, with ``variant`` and ``seed``.

    Repeated in all rows of a variant and seed: ``together``, the agreement with noise as one
    cluster, and ``sampled``, that over all pairs of 800.

    Args:
        annotate: the error category of each rollout, None where it is missing; those are left out.
    """
    frames = []
    for run in runs:
        rollouts = wrong_rollouts(run)
        rollouts["category"] = annotate(rollouts)
        rollouts = rollouts[rollouts["category"].notna()].reset_index(drop=True)
        for variant, labels in _groupings(run, rollouts):
            data = (rollouts["category"], labels, rollouts["problem_id"])
            together = pair_counts(*data, noise="together")[PAIRS].sum()
            frames.append(pair_counts(*data).assign(
                variant=variant, seed=run.config.seed,
                together=float(pair_agreement(together)), sampled=sampled_agreement(*data),
            ))
    return pd.concat(frames)


def _groupings(run: Run, rollouts: pd.DataFrame) -> Iterator[tuple[str, np.ndarray]]:
    for name in FEATURES:
        yield name, cluster_labels(rollouts, feature_settings(name, run.config))
    yield ANSWER, pd.factorize(rollouts["completion"].map(extract_answer))[0]


def agreement_by_seed(counts: pd.DataFrame) -> pd.DataFrame:
    """:data:`MEASURES` of :func:`agreement_counts` per ``variant`` and ``seed``, shares in percent;
    NaN where undefined."""
    rows = []
    for (variant, seed), of_seed in counts.groupby(["variant", "seed"], sort=False):
        found = summarise(of_seed, draws=0)["value"]
        shares = {"agreement": found["agreement"], "chance": found["chance"],
                  "together": of_seed["together"].iloc[0], "sampled": of_seed["sampled"].iloc[0]}
        rows.append({"variant": variant, "seed": seed, "kappa": found["kappa"],
                     "ari": found["ari"], **{name: 100 * s for name, s in shares.items()}})
    return pd.DataFrame(rows)


def agreement_table(
    measured: pd.DataFrame, scores: Mapping[str, Sequence[float | None]], runs: Sequence[Run],
    annotator: str,
) -> Table:
    """Fig. 5 right as a table: agreement of each variant, chance, and the pass@1 it leads to.

    Args:
        measured: of :func:`agreement_by_seed`.
        scores: pass@1 in percent per seed of each variant that was trained; None = missing.
        runs: whose rollouts were clustered.
        annotator: who named the categories, for the note.
    """
    rows = []
    for variant, group in measured.groupby("variant", sort=False):
        cells = [Cell.from_seeds(_or_none(group[name])) for name in MEASURES]
        trained = Cell.from_seeds(scores[variant]) if variant in scores else None
        published = meds_agreement().get(variant.lower())
        rows.append(Row(str(variant), (*cells, trained, published)))
    return Table(
        title="MEDS Fig. 5 right: agreement of clusters with error categories",
        columns=(*map(Column, MEASURES.values()), Column("pass@1 (%)"),
                 Column("the paper's agreement (%)")),
        rows=tuple(rows),
        row_headers=("", "Clusters by"),
        notes=(
            f"Categories: {annotator}. agreement: share of pairs of a prompt's wrong rollouts on "
            "which same category and same cluster coincide; chance: the same for clusters "
            "shuffled within each prompt; kappa: Cohen's, over all pairs; ARI: mean of the "
            "prompts' adjusted Rand indices (within a prompt it equals kappa). A noise point is a "
            "cluster of its own but in the column that says otherwise.",
            "all pairs of 800: 800 wrong rollouts drawn, and pairs across prompts counted too; "
            "hardly any of those share a cluster whatever the clusters, so it tells little.",
            "Mean and standard deviation (ddof 1) over seeds. pass@1: of the run that was trained "
            "with these clusters, test set, last checkpoint. †: read off the figure by others, "
            "less certain; on the paper's model, not comparable in value.",
        ),
        footer=provenance(runs),
        decimals=2,
    )


def _or_none(values: pd.Series) -> list[float | None]:
    return [float(v) if np.isfinite(v) else None for v in values]


def eigen_ratios(runs: Mapping[str, Sequence[Run]], window: int) -> pd.DataFrame:
    """Top-1 eigen ratio of the wrong rollouts' features, per method and seed (Fig. 5 left).

    Columns ``method``, ``seed``, ``step`` and ``ratio``: over the ``window`` steps that end at
    ``step``, or over all steps (App. E) where ``step`` is missing. Each run's features are those
    of its own cluster penalty.
    """
    frames = []
    for method, of_method in runs.items():
        for run in of_method:
            rollouts = wrong_rollouts(run)
            points = vectors(rollouts, cluster_term(run.config).settings)
            ends, ratios = sliding_eigen_ratio(points, rollouts["step"], window)
            frames.append(pd.DataFrame({
                "method": method, "seed": run.config.seed, "step": [*ends, None],
                "ratio": [*ratios, top1_eigen_ratio(points)],
            }))
    return pd.concat(frames, ignore_index=True).astype({"step": float})


def scatter_data(
    measured: pd.DataFrame, scores: Mapping[str, Sequence[float | None]]
) -> pd.DataFrame:
    """Agreement and pass@1 per variant and seed, and those the paper prints (seed missing).

    Columns ``source`` (here, paper), ``variant``, ``seed``, ``agreement``, ``chance``, ``pass@1``
    in percent, ``read off`` (by others, from the figure). ``scores`` as in :func:`agreement_table`;
    :data:`ANSWER` has none.
    """
    here = pd.concat([
        group[["variant", "seed", "agreement", "chance"]].assign(
            **{"pass@1": scores.get(str(variant), [None] * len(group))}
        )
        for variant, group in measured.groupby("variant", sort=False)
    ])
    average = {row.method: row.cells["Average"]["pass@1"] for row in meds_table2()}
    paper = pd.DataFrame([
        {"variant": name.capitalize(), "agreement": printed.mean, "read off": printed.read_off,
         "pass@1": average[f"MEDS-{name}"].mean}
        for name, printed in meds_agreement().items()
    ])
    both = pd.concat([here.assign(source="here"), paper.assign(source="paper")], ignore_index=True)
    return both.astype({"pass@1": float})


def figure5(eigen: pd.DataFrame, scatter: pd.DataFrame, window: int) -> Figure:
    """Fig. 5 left (two upper panels) and right (lower: here, and as the paper has it).

    Args:
        eigen, scatter: of :func:`eigen_ratios` with this ``window``, and of :func:`scatter_data`.
    """
    figure, ((pooled, over_steps), (here, paper)) = panels(2, 2)
    _draw_pooled(pooled, eigen[eigen["step"].isna()])
    _draw_over_steps(over_steps, eigen[eigen["step"].notna()], window)
    ours, printed = (scatter[scatter["source"] == source] for source in ("here", "paper"))
    _draw_scatter(here, ours)
    _draw_references(here, ours)
    here.set_title("Here (± std over seeds; hollow: shuffled clusters)", fontsize=10)
    _draw_scatter(paper, printed)
    paper.set_title("As the paper has it, on its model", fontsize=10)
    for _, point in printed[printed["read off"].eq(True)].iterrows():
        paper.annotate("†", (point["agreement"], point["pass@1"]), xytext=(5, 4),
                       textcoords="offset points")
    paper.text(0.98, 0.03, "†: agreement read off the figure by others",
               transform=paper.transAxes, ha="right", fontsize=8, color=INK)
    legend_below(figure, paper)
    return figure


def _draw_pooled(axes: Axes, eigen: pd.DataFrame) -> None:
    methods = list(eigen["method"].unique())
    for _, of_seed in eigen.groupby("seed"):
        axes.plot([methods.index(m) for m in of_seed["method"]], of_seed["ratio"],
                  color=GREY, linewidth=0.8, zorder=1)
    for at, method in enumerate(methods):
        ratios = eigen.loc[eigen["method"] == method, "ratio"]
        axes.scatter([at] * len(ratios), ratios, color=color(method), zorder=2)
    axes.set_xticks(range(len(methods)), methods)
    axes.set_xlim(-0.6, len(methods) - 0.4)
    axes.set_ylabel("top-1 eigen ratio")
    axes.set_title("All steps pooled, one line a seed", fontsize=10)


def _draw_over_steps(axes: Axes, eigen: pd.DataFrame, window: int) -> None:
    for method, of_method in eigen.groupby("method", sort=False):
        curves = of_method.pivot(index="seed", columns="step", values="ratio")
        mean_band(axes, curves.columns, curves.to_numpy(), str(method))
    axes.set_xlabel("generation step")
    axes.set_ylabel("top-1 eigen ratio")
    axes.set_title(f"Last {window} steps (band: ± std over seeds)", fontsize=10)
    if len(eigen):
        axes.legend(frameon=False)


def _draw_scatter(axes: Axes, points: pd.DataFrame) -> None:
    for at, name in enumerate(FEATURES):
        seen = points[points["variant"] == name].dropna(subset=["agreement", "pass@1"])
        if seen.empty:
            continue
        x, y = seen["agreement"], seen["pass@1"]
        # pandas' std of a single value is NaN, which draws no bar
        axes.errorbar(x.mean(), y.mean(), xerr=x.std(), yerr=y.std(), fmt=MARKERS[at],
                      color=SERIES[at], elinewidth=1, label=name)
        axes.scatter(seen["chance"].mean(), y.mean(), marker=MARKERS[at], color="none",
                     edgecolors=SERIES[at])
    axes.margins(0.15)
    axes.set_xlabel("agreement of pairs (%)")
    axes.set_ylabel("pass@1 (%)")


def _draw_references(axes: Axes, points: pd.DataFrame) -> None:
    answer = points.loc[points["variant"] == ANSWER, "agreement"].mean()
    axes.axvline(answer, color=GREY, linewidth=1, linestyle=":")
    low, high = axes.get_xlim()
    axes.set_xlim(low, max(high, answer + 0.08 * (answer - low)))  # room for the words
    axes.annotate(f" {ANSWER}", (answer, 0.02), xycoords=("data", "axes fraction"), rotation=90,
                  ha="left", va="bottom", fontsize=8, color=INK)
