"""Tables of several models and benchmarks from a store of made-up runs."""

import pytest

from paperlib.experiments import rows, variants
from paperlib.experiments.recipes import eval_settings, models, recipe
from paperlib.experiments.store import Store
from paperlib.files import write_json_atomic
from paperlib.report.scores import compare, fixed_questions
from paperlib.report.table1 import provenance, score_rows, table1
from paperlib.report.tables import to_markdown

MACHINE = {"commit": "c" * 40, "dirty": False,
           "machine": {"cpu": "x", "cores": 2, "device": "cpu"}}  # fmt: skip
QWEN, LLAMA = "Qwen/Qwen2.5-0.5B-Instruct", "meta-llama/Llama-3.2-1B-Instruct"


def put(run, steps, evaluations, environment=MACHINE):
    """A complete run; ``evaluations``: settings -> step -> list of problems."""
    write_json_atomic(run.folder / "config.json", run.config.to_dict())
    write_json_atomic(run.folder / "environment.json", environment)
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


def answers(settings, *rights):
    """One problem a task of the evaluation; ``rights``: how many of its samples are right."""
    tasks, n = settings.task.split("+"), settings.samples
    levels = tasks if len(tasks) > 1 else [None]
    return [
        {"id": f"{level}-{i}", "level": level, "n": n, "correct": right, "truncated": 0,
         "responses": ["t"] * n, "grades": [1] * right + [0] * (n - right)}
        for i, (level, right) in enumerate(zip(levels, rights, strict=True))
    ]  # fmt: skip


def complete(run, paper, model, by_step, *, greedy=()):
    """A finished run whose test results are ``by_step``; its first checkpoint validates best."""
    test, validation = (
        eval_settings(paper, run.config.profile, s, model=model) for s in ("test", "validation")
    )
    evaluations = [
        (test, {step: answers(test, *rights) for step, rights in by_step.items()}),
        (validation, {step: answers(validation, 2 - i) for i, step in enumerate(by_step)}),
    ]
    if greedy:
        settings = eval_settings(paper, run.config.profile, "test", greedy=True, model=model)
        evaluations.append((settings, {list(by_step)[-1]: answers(settings, *greedy)}))
    return put(run, list(by_step), evaluations)


def of_profile(paper, profile, store):
    """Its Table 1's runs of seed 0, by model."""
    return {m: rows.table1_runs(paper, profile, "paper", (0,), store, m)
            for m in models(paper, profile, None)}  # fmt: skip


@pytest.fixture
def two_models(tmp_path):
    """R1, seed 0, of Qwen and of Llama in the profile paper, and Qwen's Base."""
    runs = {m: rows.table1_runs("memory_r", "paper", "paper", (0,), Store(tmp_path), m)
            for m in (QWEN, LLAMA)}  # fmt: skip
    complete(runs[QWEN]["Base"][0], "memory_r", QWEN, {0: (2, 2, 0)})
    complete(runs[QWEN]["R1"][0], "memory_r", QWEN, {400: (2, 0, 0), 467: (3, 2, 1)},
             greedy=(1, 0, 0))  # fmt: skip
    complete(runs[LLAMA]["R1"][0], "memory_r", LLAMA, {467: (4, 0, 0)})
    return runs


def test_a_block_of_rows_a_model_and_a_column_a_benchmark(two_models):
    table = table1("memory_r", two_models, "paper", "paper", checkpoints=("last", "best", "max"))
    cells = table.frame()
    assert cells["row_group"].unique().tolist() == [
        "Qwen2.5-0.5B-Instruct, temperature 1", "Qwen2.5-0.5B-Instruct, greedy",
        "Llama-3.2-1B-Instruct, temperature 1", "Llama-3.2-1B-Instruct, greedy",
    ]  # fmt: skip
    assert cells["column_group"].unique().tolist() == ["GSM8K", "MATH-500", "AIME24", "Average"]
    cells = cells.set_index(["row_group", "row", "column", "column_group"])["text"].sort_index()
    qwen, sampled = (cells[f"{model}, temperature 1"] for model in
                     ("Qwen2.5-0.5B-Instruct", "Llama-3.2-1B-Instruct"))
    assert qwen["R1", "last"].to_dict() == {
        "GSM8K": "75.0", "MATH-500": "50.0", "AIME24": "25.0", "Average": "50.0"
    }
    assert qwen["R1", "best", "GSM8K"] == "50.0"  # what validation chose
    assert cells["Qwen2.5-0.5B-Instruct, greedy", "R1", "last", "GSM8K"] == "100.0"
    assert [qwen["Base", which, "GSM8K"] for which in ("last", "best")] == ["50.0", "–"]
    assert [sampled[m, "last", "GSM8K"] for m in ("R1", "Base")] == ["100.0", "missing"]
    text = to_markdown(table)
    assert "last:\n\n| Model, decoding | Method | GSM8K | MATH-500 | AIME24 | Average |" in text
    assert "GSM8K (1319), MATH-500 (500), AIME24 (30); the average weighs" in text
    assert "tiny world" not in text and "3 runs, config hashes" in text


def test_without_a_choice_the_profile_decides_on_the_models(tmp_path):
    table = table1("meds", of_profile("meds", "paper", Store(tmp_path)), "paper", "paper")
    groups = list(dict.fromkeys(row.group for row in table.rows))
    assert groups[::2] == ["Qwen3-1.7B, last", "Qwen3-8B, last", "Qwen2.5-Math-7B, last"]
    assert [c.name for c in table.columns[:2]] == ["pass@1", "pass@128"]
    assert table.footer == ("No run stands behind this table yet.",)


def test_one_benchmark_has_one_column_whatever_its_own_levels(tmp_path):
    store = Store(tmp_path)
    run = store.run(recipe("meds", "GRPO", "laptop", 0))
    complete(run, "meds", None, {24: (1,), 48: (2,)})
    table = table1("meds", of_profile("meds", "laptop", store), "laptop", "paper")
    assert [(c.group, c.name) for c in table.columns] == [
        ("GSM8K subset", "pass@1"), ("GSM8K subset", "pass@4")
    ]
    grpo = next(row for row in table.rows if row.label == "GRPO")
    assert grpo.group == "SmolLM2-135M-Instruct, last"
    assert [cell.values for cell in grpo.cells] == [(50.0,), (100.0,)]


def test_claims_are_about_the_papers_models_where_the_profile_has_them(two_models):
    runs = two_models
    tests = {m: eval_settings("memory_r", "paper", "test", model=m) for m in runs}

    def gain(claimed, **more):
        return compare(runs, tests, "R1 - Base", "R1", "Base", claimed=claimed, **more)

    (found,), text = gain(("Qwen", "Falcon"), level="paperlib_gsm8k")
    assert found.mean == 25.0
    assert text == "Qwen2.5-0.5B-Instruct: R1 - Base: +25.0 points (one seed, no interval)"
    (both, missing), text = gain(("SmolLM2",))  # none of the runs': all of them
    assert both.mean == pytest.approx(50 - 100 / 3) and missing is None
    assert text.endswith("; Llama-3.2-1B-Instruct: missing")
    alone = {QWEN: runs[QWEN]}
    assert compare(alone, tests, "x", "R1", "Base")[1].startswith("x: +16.7")  # no name


def test_table_2_scores_the_authors_policy_at_its_one_checkpoint(tmp_path):
    runs = rows.k_runs("paper", "paper", (0, 1), Store(tmp_path))
    assert len(runs) == 5 and len(runs[variants.AUTHORS]) == 1
    (authors,) = runs[variants.AUTHORS]
    assert (authors.config.max_steps, authors.config.terms) == (0, ())
    assert authors.config.model.endswith("::Qwen2.5-0.5B-Open-R1-GRPOmemory_combine-20-2000-0")
    test = variants.small_data_settings("paper", "test")
    put(authors, (0,), [(test, {0: answers(test, 3, 1, 0)})])
    heads = [("paperlib_gsm8k", which, 1) for which in ("last", "best")]
    one, other = score_rows({"a": [authors], "b": runs["Memory-R+ K=20"]}, heads, test, test)
    assert one.cells[0].values == (75.0,) and one.cells[1] is None
    assert [cell.text(1) for cell in other.cells] == ["missing"] * 2


def test_dapo_and_14_of_table_2_are_the_runs_of_table_1(tmp_path):
    runs = rows.table2_runs("tiny", "paper", (0, 1), Store(tmp_path))
    assert [run.config.method for run in (runs["DAPO"][0], runs["14"][1])] == ["DAPO", "MEDS"]
    assert [run.config.seed for run in runs["28"]] == [0, 1]


def test_the_hundred_questions_are_the_first_of_each_level():
    many = [{"id": f"{i}-{level}", "level": level} for level in (1, 2, 3, 4) for i in range(40)]
    chosen = fixed_questions({"settings": {"task": "tiny_test"}, "problems": many}, 100)
    assert [p["id"] for p in chosen[24:26]] == ["24-1", "0-2"] and len(chosen) == 100
    alone = {"settings": {"task": "paperlib_math_geometry"}, "problems": many}
    assert fixed_questions(alone, 100) == many[:100]  # a benchmark alone keeps its own levels


def test_the_footer_names_commits_machine_and_configs(tmp_path):
    runs = [Store(tmp_path).run(recipe("meds", "GRPO", "tiny", seed)) for seed in (0, 1, 2)]
    put(runs[0], (0,), [])
    put(runs[1], (0,), [], MACHINE | {"commit": "a" * 40, "dirty": True})
    hashes = sorted(run.config.hash for run in runs[:2])
    assert provenance(runs) == (
        "Commit: aaaaaaaaaa, cccccccccc with uncommitted changes",
        "Machine: x, 2 cores, device cpu",
        f"2 runs, config hashes: {hashes[0]}, {hashes[1]}",
    )
