"""Tables 2 and 6 to 9 and Fig. 2 from a store of made-up runs."""

import math

import pytest
import torch

from paperlib.experiments.recipes import eval_settings, recipe
from paperlib.experiments.store import Store
from paperlib.files import write_json_atomic
from paperlib.report import memory_r_responses as responses
from paperlib.report import memory_r_tables as tables
from paperlib.report.accuracy_curves import accuracy_panels, checkpoint_accuracy
from paperlib.report.tables import to_markdown

TEST = eval_settings("memory_r", "smoke", "test")
VALIDATION = eval_settings("memory_r", "smoke", "validation")
MACHINE = {"commit": "c" * 40, "dirty": False,
           "machine": {"cpu": "x", "cores": 2, "device": "cpu"}}  # fmt: skip


def problem(level, texts, right, name="p"):
    grades = [1] * right + [0] * (len(texts) - right)
    return {"id": f"{name}{level}", "level": level, "n": len(texts), "correct": right,
            "responses": texts, "grades": grades}  # fmt: skip


def put(run, steps, evaluations):
    """A complete run; ``evaluations``: settings -> step -> list of problems."""
    write_json_atomic(run.folder / "config.json", run.config.to_dict())
    write_json_atomic(run.folder / "environment.json", MACHINE)
    for step in steps:
        mark = run.folder / "checkpoints" / f"{step:06d}" / "COMPLETE"
        mark.parent.mkdir(parents=True)
        mark.touch()
    write_json_atomic(run.folder / "complete.json", {"step": steps[-1]})
    for settings, by_step in evaluations:
        for step, problems in by_step.items():
            result = {"settings": settings.to_dict(), "problems": problems}
            write_json_atomic(run.evaluation_path(step, settings), result)
    return run


def scored(*rights):
    """Four samples to one problem a level."""
    return [problem(level, ["t"] * 4, right) for level, right in enumerate(rights, start=1)]


@pytest.fixture
def by_k(tmp_path):
    """K = 20, seed 0 and 1 evaluated; K = 1 has seed 0 alone."""
    store = Store(tmp_path)
    names = ("Memory-R+ K=1", "Memory-R+ K=20")
    runs = tables.small_data_runs(names, "smoke", "paper", (0, 1), store)
    first, last = scored(4, 4, 2, 0), scored(4, 0, 0, 0)
    for run in runs["Memory-R+ K=20"]:
        # the validation split sees the first checkpoint ahead
        evaluated = [(TEST, {4: last, 8: first}), (VALIDATION, {4: first, 8: last})]
        put(run, (4, 8), evaluated)
    put(runs["Memory-R+ K=1"][0], (4, 8), [(TEST, {4: last, 8: last}), (VALIDATION, {4: last})])
    return runs


def test_table2(by_k):
    table = tables.memory_r_table2(by_k, "smoke", "paper")
    assert [row.label for row in table.rows] == ["K = 1", "K = 20"]
    average = {c.name: i for i, c in enumerate(table.columns) if c.group == "Average"}
    one, twenty = (row.cells for row in table.rows)
    assert twenty[average["last"]].values == (62.5, 62.5)  # (100 + 100 + 50 + 0) / 4
    assert twenty[average["best"]].values == (25.0, 25.0)  # what validation chose
    assert twenty[average["max"]].values == (62.5, 62.5)
    assert one[average["last"]].text(1) == "25.0 (1 of 2)"
    assert one[average["best"]].text(1) == "missing"  # a checkpoint without validation result
    assert "3 runs, config hashes" in to_markdown(table)


def test_figure2_starts_at_the_base_model(by_k, tmp_path):
    base = put(Store(tmp_path).run(recipe("memory_r", "Base", "smoke", 0)), (0,),
               [(TEST, {0: scored(4, 4, 4, 4)})])  # fmt: skip
    frame = checkpoint_accuracy(by_k, base, TEST)
    mine = frame[(frame.method == "Memory-R+ K=20") & (frame.seed == 1)]
    average = mine[mine.level == "Average"]
    assert average[["step", "accuracy"]].to_numpy().tolist() == [[0, 100], [4, 25], [8, 62.5]]
    assert sorted(frame.level.astype(str).unique()) == ["1", "2", "3", "4", "Average"]
    figure = accuracy_panels(frame)
    titles = [ax.get_title() for ax in figure.axes]
    assert titles == ["Level 1", "Level 2", "Level 3", "Level 4", "Average", ""]
    # a seed without any evaluation has the base's point only and leaves no curve full of holes
    (one, twenty) = figure.axes[4].lines
    assert twenty.get_ydata().tolist() == [100, 25, 62.5]
    assert one.get_ydata().tolist() == [100, 25, 25]


@pytest.fixture
def talkers(tmp_path):
    """Base and R1, seed 0; R1, seed 1 is not there. R1 checks itself, Base repeats itself."""
    store = Store(tmp_path)
    seeds = {"Base": (0,), "R1": (0, 1)}
    runs = {m: [store.run(recipe("memory_r", m, "smoke", s)) for s in seeds[m]] for m in seeds}
    alike = [problem(level, ["a b"] * 4, 4) for level in (1, 2, 3, 4)]
    mixed = [problem(level, ["a b", "c d", "a b", "x"], 2) for level in (1, 2, 3)]
    mixed.append(problem(4, ["# 1\n<b> & let me check: 2", "c d", "c d", "x"], 2, "tiny-smoke-"))
    cold = tables.table6_settings("smoke")[0.1]
    put(runs["Base"][0], (0,), [(TEST, {0: alike}), (cold, {0: alike})])
    put(runs["R1"][0], (8,), [(TEST, {8: mixed})])
    return runs


class OneHot:
    """An encoder under which different texts share nothing."""

    def encode(self, texts):
        names = list(dict.fromkeys(texts))
        return torch.eye(len(names))[[names.index(text) for text in texts]]


def test_table6(talkers, monkeypatch):
    monkeypatch.setattr(tables, "text_encoder", lambda name: {"tiny": OneHot()}[name])
    scores = tables.diversity_scores(talkers, "smoke")
    # Base at both temperatures, R1 at 1 only; two measures each
    assert len(scores) == 6

    def value(measure, method):
        return tables.seed_values(scores, 1.0, measure, method, (0, 1))

    assert value("TF-IDF", "Base") == pytest.approx([0.0], abs=1e-9)
    first, second = value("TF-IDF", "R1")
    assert second is None
    # levels 1 to 3: one pair of three is alike, two share nothing. Level 4: the same
    assert first == pytest.approx(100 * 2 / 3)
    assert value("Sentence transformer", "R1")[0] == pytest.approx(100 * 2 / 3)
    table = tables.memory_r_table6(scores, talkers, "smoke", "paper", (0, 1))
    texts = [[c.text(1) if c else "-" for c in row.cells[:3]] for row in table.rows]
    assert texts == [
        ["0.0", "-", "-"], ["missing", "missing", "missing"],
        ["0.0", "-", "-"], ["66.7 (1 of 2)", "66.7", "missing"],
    ]  # fmt: skip


def test_the_settings_of_table6_keep_table1s_evaluation():
    settings = tables.table6_settings("tiny")
    assert settings[1.0] == eval_settings("memory_r", "tiny", "test")
    assert (settings[0.1].samples, settings[0.1].temperature) == (3, 0.1)
    assert settings[0.1].task == settings[1.0].task


def test_the_hundred_questions_are_the_first_of_each_level():
    many = [problem(level, ["t"], 1, f"{i}-") for level in (1, 2, 3, 4) for i in range(40)]
    chosen = tables.fixed_questions({"settings": {"task": "tiny_test"}, "problems": many})
    assert [p["id"] for p in chosen[24:26]] == ["24-1", "0-2"] and len(chosen) == 100
    alone = {"settings": {"task": "paperlib_math_geometry"}, "problems": many}
    assert tables.fixed_questions(alone) == many[:100]  # a benchmark alone keeps its own levels


def test_self_verification_table(talkers):
    table = responses.self_verification_table(talkers, TEST, "smoke", "paper")
    assert [row.label for row in table.rows] == ["Base", "R1, seed 0", "R1, seed 1"]
    assert table.columns[0].group == "one response a question (4 a model)"
    base, r1, absent = ([c.mean for c in row.cells] for row in table.rows)
    assert base[0] == base[1] == 0
    assert r1[0] == 25 and r1[3] == 100 / 16  # one of 4 first responses, one of 16 samples
    assert r1[1] < r1[0] < r1[2]
    assert absent == [None] * 6
    assert math.isclose(responses.self_verifying_share(
        talkers["R1"][0], TEST, responses.all_responses), 6.25)  # fmt: skip
    assert responses.self_verifying_share(talkers["R1"][1], TEST, len) is None


def test_responses_are_shown_as_they_are(talkers, monkeypatch):
    from paperlib.tasks.data import Problem

    asked = [Problem(i, "How *many*?", "2") for i in ("p4", "tiny-smoke-4")]
    monkeypatch.setattr(responses, "load_problems", lambda name: asked)
    text = responses.responses_markdown({**talkers, "Memory-R+": [talkers["R1"][1]]}, TEST)
    assert "<pre>&#35; 1\n&lt;b&gt; &amp; let me check: 2</pre>" in text
    assert "How \\*many\\*? (answer: 2)" in text
    assert "**R1**, right. Of 4 samples, right: 2; with a phrase of self-verification: 1." in text
    assert "**Memory-R+**: missing" in text
    assert text.count("**Question.**") == 1


def test_published_table6_says_what_the_paper_prints():
    table = tables.published_table6()
    printed = {row.label: [cell.mean for cell in row.cells] for row in table.rows}
    assert printed == {"Base": [27.3, 9.0], "R1": [24.2, 8.6], "Memory-R+": [27.6, 9.3]}
