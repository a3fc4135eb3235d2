"""MEDS Fig. 5 from stored rollouts: clusters replayed, agreement, eigen ratios, the figure."""

import random

import numpy as np
import pandas as pd
import pytest

from paperlib.errors import UserError
from paperlib.experiments.recipes import recipe
from paperlib.experiments.store import Run
from paperlib.experiments.variants import FEATURES, recorded_dapo
from paperlib.methods.clustering import NOISE
from paperlib.methods.meds import Meds
from paperlib.report import meds_agreement as fig5
from paperlib.tasks.tiny.problems import tiny_problem
from paperlib.tasks.tiny.solutions import write_solution

PROBLEMS = ("tiny-train-040", "tiny-train-041")
HABITS = ("wrong_operation", "miscopied_answer")


class StoredRun(Run):
    """A run that is nothing but a config and its rollouts."""

    def __init__(self, config, rollouts, folder):
        super().__init__(config, folder)
        self._rollouts = rollouts

    def rollouts(self, steps=None):
        return self._rollouts.copy()


def make_rollouts(seed=0):
    """Per problem and step: two wrong rollouts of each habit, one right, one without an answer.

    The later half of the layers knows the habit, the earlier half is noise.
    """
    rng, noise, rows = random.Random(seed), np.random.default_rng(seed), []
    kinds = (*HABITS, *HABITS, "none", "broken_format")
    for step in (1, 2, 3):
        for problem_id in PROBLEMS:
            for kind in kinds:
                completion = None
                while completion is None:  # a draw may not admit the habit
                    completion = write_solution(rng, tiny_problem(problem_id), "boxed", kind)
                logits = np.full(8, np.nan)
                if kind != "broken_format":
                    late = np.eye(4)[HABITS.index(kind) if kind in HABITS else 2]
                    logits = np.r_[noise.normal(size=4), late + 0.01 * noise.normal(size=4)]
                rows.append((step, problem_id, completion, float(kind == "none"), logits))
    return pd.DataFrame(
        rows, columns=["step", "problem_id", "completion", "accuracy", "layer_logits"]
    )


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("none")
    return [
        StoredRun(recipe("meds", "MEDS", "tiny", s), make_rollouts(s), folder) for s in (0, 1)
    ]


@pytest.fixture(scope="module")
def measured(runs):
    return fig5.agreement_by_seed(fig5.agreement_counts(runs))


def test_what_meds_stores(runs, tmp_path):
    found = fig5.wrong_rollouts(runs[0])
    assert len(found) == 3 * 2 * 4
    assert set(fig5.diagnoses(found)) == set(HABITS)
    bare = StoredRun(recipe("meds", "GRPO", "tiny", 0),
                     make_rollouts().drop(columns="layer_logits"), tmp_path)
    with pytest.raises(UserError, match="no layer logits"):
        fig5.wrong_rollouts(bare)


def test_clusters_stay_within_a_prompt(runs):
    rollouts = fig5.wrong_rollouts(runs[0])
    assert set(fig5.cluster_labels(rollouts, Meds(method="single"))) == {0}
    # one rollout alone is noise, whatever other prompts hold
    lonely = pd.concat([rollouts[rollouts["problem_id"] == PROBLEMS[0]],
                        rollouts[rollouts["problem_id"] == PROBLEMS[1]].head(1)])
    assert fig5.cluster_labels(lonely, Meds(method="single"))[-1] == NOISE


def test_the_feature_that_knows_the_error_agrees_best(measured):
    assert measured["variant"].unique().tolist() == [*FEATURES, fig5.ANSWER]
    assert measured["seed"].tolist() == [0] * 6 + [1] * 6
    mean = measured.groupby("variant").mean()
    # two habits, six rollouts each: 30 of 66 pairs share the category
    assert mean.loc["Single cluster", "agreement"] == pytest.approx(100 * 30 / 66)
    assert mean.loc["Single cluster", ["kappa", "ari"]].tolist() == [0, 0]
    assert mean.loc["14", "agreement"] > mean.loc["28", "agreement"] + 3
    assert (mean.loc["14", "agreement"] - mean.loc["14", "chance"]) > 10


def test_categories_that_are_missing_are_left_out(runs):
    def only_first_step(rollouts):
        return ["a" if step == 1 else None for step in rollouts["step"]]

    counts = fig5.agreement_counts(runs[:1], annotate=only_first_step)
    single = counts[counts["variant"] == "Single cluster"]
    assert single["both"].tolist() == [6, 6]  # four rollouts a prompt, one category, one cluster
    assert single["neither"].tolist() == [0, 0]


SCORES = {name: [50.0 + i, 52.0 + i] for i, name in enumerate(FEATURES)} | {"28": [None, None]}


def test_table(measured, runs):
    table = fig5.agreement_table(measured, SCORES, runs, "made up")
    rows = {row.label: row for row in table.rows}
    assert [row.label for row in table.rows] == [*FEATURES, fig5.ANSWER]
    assert rows["14"].cells[-2].mean == 55 and rows["28"].cells[-2].text(1) == "missing"
    assert rows["Single cluster"].cells[-1].text(2) == "45.16†"
    assert rows["14"].cells[-1].text(2) == "61.20"  # in the paper's text: no mark
    assert rows[fig5.ANSWER].cells[-2:] == (None, None)
    assert "made up" in table.notes[0]


def test_scatter_keeps_variant_and_seed_together(measured):
    data = fig5.scatter_data(measured, SCORES)
    here = data[data["source"] == "here"].set_index(["variant", "seed"])
    known = measured.set_index(["variant", "seed"])
    for name in ("Single cluster", "14-diff", "14"):
        for seed in (0, 1):
            assert here.loc[(name, seed), "pass@1"] == SCORES[name][seed]
            assert here.loc[(name, seed), "agreement"] == known.loc[(name, seed), "agreement"]
    assert here.loc["28", "pass@1"].isna().all() and here.loc[fig5.ANSWER, "pass@1"].isna().all()
    paper = data[data["source"] == "paper"].set_index("variant")
    assert paper.loc["14", ["agreement", "pass@1"]].tolist() == [61.2, 56.47]
    assert paper["read off"].to_dict() == {name: name != "14" for name in FEATURES}


def test_eigen_ratios(runs, tmp_path):
    # DAPO's features here are one of two points each, so all lie on a line
    flat = make_rollouts()
    flat["layer_logits"] = [np.eye(8)[-1 - row // 2 % 2] for row in range(len(flat))]
    dapo = StoredRun(recorded_dapo("tiny", 0), flat, tmp_path)
    found = fig5.eigen_ratios({"DAPO": [dapo], "MEDS": runs}, window=2)
    pooled = found[found["step"].isna()].set_index(["method", "seed"])["ratio"]
    assert pooled["DAPO", 0] == pytest.approx(1)
    # the two habits differ much more than the rollouts of one habit, which still differ
    assert 0.99 < pooled["MEDS", 0] < 1 - 1e-5
    over_steps = found[(found["method"] == "MEDS") & (found["seed"] == 1)]
    assert over_steps["step"].dropna().tolist() == [2, 3]


def test_figure_draws_what_the_data_say(measured, runs):
    eigen = fig5.eigen_ratios({"MEDS": runs}, window=2)
    figure = fig5.figure5(eigen, fig5.scatter_data(measured, SCORES), window=2)
    pooled, over_steps, here, paper = figure.axes
    curve = eigen.dropna().groupby("step")["ratio"].mean()
    assert over_steps.lines[0].get_ydata().tolist() == pytest.approx(curve.tolist())
    dots = eigen.loc[eigen["step"].isna(), "ratio"]
    assert pooled.collections[0].get_offsets()[:, 1].tolist() == pytest.approx(dots.tolist())
    assert len(here.containers) == 4 and len(paper.containers) == 5  # 28 was not trained
    assert [t.get_text() for t in paper.texts].count("†") == 4
    assert [t.get_text() for t in figure.legends[0].get_texts()] == list(FEATURES)
