"""The rollout browser: penalties as logged, neighbours, pairs, and text that cannot break out."""

import copy
import random

import numpy as np
import pandas as pd
import pytest

from paperlib.errors import UserError
from paperlib.experiments.recipes import recipe
from paperlib.experiments.store import Store
from paperlib.experiments.variants import cluster_term
from paperlib.methods.meds import NOT_CLUSTERED
from paperlib.methods.rollouts import Rollouts
from paperlib.report.browser import (
    case_study,
    choose_prompt,
    clusters,
    pair_shares,
    to_html,
    to_markdown,
    wrong_rollouts,
)
from paperlib.report.browser_figure import case_figure, plotted
from paperlib.rl.logs import write_rollouts
from paperlib.tasks.data import load_problems
from paperlib.tasks.grading import extract_answer
from paperlib.tasks.tiny.solutions import CATEGORIES, draw_solution


def rollouts(problem="p", **columns):
    """Hand-made rows of wrong_rollouts; features are points on the unit circle by ``angle``."""
    frame = pd.DataFrame(columns)
    angles = frame.pop("angle").astype(float)
    vectors = [np.array([np.cos(a), np.sin(a)]) for a in angles]
    n = len(frame)
    given = {
        "name": [f"r{i}" for i in range(n)], "step": 1, "visit": 1, "problem_id": problem,
        "completion": "1+1=3\n\\boxed{3}", "answer": "3", "category": "other", "cluster": -2,
        "size": 0, "penalty": 0.0, "logged": 0.0, "final": 0,
    }  # fmt: skip
    return pd.DataFrame({**given, **frame}, index=range(n)).assign(
        layer_logits=[10 * v for v in vectors], feature=vectors)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A stored run of three visits of two problems, without a model: planted errors, and layer
    logits that point where the answer says."""
    config, rng = recipe("meds", "MEDS", "smoke", 0), random.Random(0)
    run = Store(tmp_path_factory.mktemp("runs")).run(config)
    run.folder.mkdir(parents=True)
    term, problems = copy.deepcopy(cluster_term(config)), load_problems(config.dataset)[2:4]
    size, noise = 8, np.random.default_rng(0)
    for step in (1, 2, 3):
        asked = [p for p in problems for _ in range(size)]
        texts = [draw_solution(rng, p, "boxed") for p in asked]
        answers = [extract_answer(text) for text in texts]
        logits = np.array([np.full(8, np.nan) if a is None else
                           np.cos(int(a) * np.arange(1, 9)) + 0.001 * noise.normal(size=8)
                           for a in answers])
        batch = Rollouts(
            step=step, num_generations=size, problem_ids=[p.id for p in asked],
            questions=[p.question for p in asked], golds=[p.answer for p in asked],
            completions=texts, lengths=np.full(len(texts), 9),
            truncated=np.zeros(len(texts), dtype=bool), max_completion_length=80,
            accuracy=np.array([a == p.answer for a, p in zip(answers, asked, strict=True)], float),
            layer_logits=logits.astype(np.float32),
        )
        rewards = term(batch)
        write_rollouts(run.folder, batch, {term.name: rewards}, rewards, rewards)
    return run


def test_penalties_are_the_logged_ones(run):
    found, stored = wrong_rollouts(run), run.rollouts()
    assert len(found) == (stored["accuracy"] == 0).sum() > 0
    assert (found["penalty"] == found["logged"]).all() and (found["penalty"] > 0).any()
    assert (found.loc[found["visit"] == 1, "penalty"] == 0).all()
    expected = np.minimum(0.1 * np.log1p(found["size"]), 0.2)
    assert found["penalty"].to_numpy() == pytest.approx(expected.to_numpy())
    unanswered = found["answer"].isna()
    assert (found["final"].eq(NOT_CLUSTERED) == unanswered).all()
    assert set(found["category"]) <= set(CATEGORIES) and found["category"].nunique() > 1


def test_a_case_of_the_run(run):
    found = wrong_rollouts(run)
    case = case_study(found, choose_prompt(found))
    # what is near comes from an earlier visit, and nothing earlier is nearer
    for row in case[case["nearest"] != ""].itertuples():
        past = case[(case["visit"] < row.visit) & case["answer"].notna()]
        gaps = [np.linalg.norm(row.feature - v) for v in past["feature"]]
        assert row.distance == pytest.approx(min(gaps))
        assert row.nearest == past["name"].iloc[int(np.argmin(gaps))]
    assert (case.loc[case["visit"] == 1, "nearest"] == "").all()
    assert clusters(case)["rollouts"].sum() == len(case)
    assert len(case_figure(case).axes) == 6  # four panels, two colour bars


def test_a_run_without_the_penalty_is_refused(tmp_path):
    run = Store(tmp_path).run(recipe("meds", "DAPO", "smoke", 0))
    with pytest.raises(UserError, match="no cluster penalty"):
        wrong_rollouts(run)


def test_the_rule_that_chooses_the_prompt():
    one = rollouts("a", angle=[0, 0, 0], final=[0, 0, 0])
    two = rollouts("b", angle=[0, 1], final=[0, 1])
    noise = rollouts("c", angle=[0, 1, 2, 3], final=[0, -1, -1, -2])
    assert choose_prompt(pd.concat([one, two, noise])) == "b"
    assert choose_prompt(pd.concat([one, noise])) == "c"  # nowhere two clusters: the most rollouts
    more = rollouts("aa", angle=[0, 1], final=[4, 7])
    assert choose_prompt(pd.concat([two, more])) == "aa"
    with pytest.raises(UserError, match="no wrong rollout"):
        choose_prompt(one[:0])
    with pytest.raises(UserError, match="'x'.*some of a, b"):
        case_study(pd.concat([one, two]), "x")


def test_neighbours_and_order_by_hand():
    frame = rollouts(angle=[0.0, 1.0, 0.1, 0.9, np.nan], visit=[1, 1, 2, 2, 2],
                     final=[1, -1, 0, 1, -2], answer=["1", "2", "3", "4", None])
    case = case_study(frame, "p")
    assert case["name"].tolist() == ["r2", "r0", "r3", "r1", "r4"]  # noise, then no answer, last
    assert case["nearest"].tolist() == ["r0", "", "r1", "", ""]
    assert case["distance"][0] == pytest.approx(2 * np.sin(0.05))
    assert plotted(case)["name"].tolist() == ["r2", "r0", "r3", "r1"]


def test_pairs_by_hand():
    one = rollouts("a", angle=[0, 0, 0, 0], answer=["1", "1", "1", "2"], final=[0, 0, 1, 0],
                   category=["x", "x", "y", "x"])
    two = rollouts("b", angle=[0, 0, np.nan], answer=["1", "1", None], final=[-1, -1, -2],
                   category=["x", "x", "x"])
    shares = pair_shares(pd.concat([one, two]))
    assert shares["pairs"].tolist() == [2, 2, 2, 1]
    # both same: r0 r1 together, the noise of b not; only the answer: never; only the category:
    # r0 r3 and r1 r3 together; neither: r2 r3 apart
    assert shares["together"].tolist() == [0.5, 0.0, 1.0, 0.0]
    assert pair_shares(two[:1])["together"].isna().all()


def test_text_of_the_model_cannot_break_out():
    evil = "<script>alert(1)</script> | $x$\n</pre>**b**"
    case = case_study(rollouts(angle=[0.0], completion=[evil], answer=["<b>"]), "p")
    page = to_html(case)
    assert "<script>" not in page and "<b>" not in page and page.count("</pre>") == page.count(
        "<pre>")
    assert "&lt;script&gt;alert(1)&lt;/script&gt; | $x$\n" in page  # lines are kept
    text = to_markdown(case)
    assert "<script>" not in text and "\\| \\$x\\$; " in text and "\\*\\*b" in text
    assert all(line.count(" | ") == 10 for line in text.splitlines()[5:] if line.startswith("|"))


def test_markdown_shows_the_first_of_each_cluster():
    case = case_study(rollouts(angle=[0] * 5, final=[0, 0, 0, 1, -1]), "p")
    text = to_markdown(case, per_cluster=2)
    assert "4 of 5 wrong rollouts" in text
    assert text.count("\n| r") == 1 + 4  # the head, and four rows


def test_a_figure_needs_an_answer():
    case = case_study(rollouts(angle=[np.nan], answer=[None], final=[-2]), "p")
    with pytest.raises(UserError, match="no wrong rollout of this prompt has a final answer"):
        case_figure(case)
    assert case_figure(case_study(rollouts(angle=[0.5], category=[""]), "p"))  # one point
