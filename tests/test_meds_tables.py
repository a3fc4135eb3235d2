"""MEDS Table 2 from stored scores, and claims about several differences at once."""

import pytest

from paperlib.experiments.recipes import eval_settings
from paperlib.experiments.store import Store
from paperlib.report import meds_tables
from paperlib.report.meds_tables import last_scores, meds_table2, table2_runs
from paperlib.report.published import published_table
from paperlib.report.tables import to_markdown

PASS_1 = {"DAPO": 60.0, "MEDS Single cluster": 59.0, "MEDS 28-diff": 61.0, "MEDS 14-diff": 62.0,
          "MEDS 28": 63.0, "MEDS": 64.0}


@pytest.fixture
def scored(monkeypatch):
    """Scores as if all runs were there: of a method, plus 10 for pass@n, plus the level."""
    asked = []

    def score(run, which, test, validation, k, level):
        asked.append((which, test))
        bonus = 0 if level == meds_tables.AVERAGE else level
        return PASS_1[run.config.method] + (10 if k > 1 else 0) + bonus + run.config.seed

    monkeypatch.setattr(meds_tables, "checkpoint_score", score)
    return asked


def test_rows_columns_and_marks(scored, tmp_path):
    table = meds_table2("tiny", "paper", [0, 1, 2], Store(tmp_path))
    assert [row.label for row in table.rows] == [
        row.label for row in published_table("meds", "table2").rows
    ]
    assert [(c.group, c.name) for c in table.columns[:2]] == [
        ("Level 1", "pass@1"), ("Level 1", "pass@16")
    ]
    average = {row.label: row.cells[-2] for row in table.rows}
    assert average["MEDS-14-diff"].text(1) == "63.0 ± 1.0"  # 62, 63, 64 over the seeds
    assert {label: cell.mark for label, cell in average.items() if cell.mark} == {
        "MEDS-14": "bold", "MEDS-28": "underline"
    }
    assert table.rows[0].cells[7].mean == 60 + 10 + 4 + 1  # level 4, pass@16
    # the last checkpoint, on the settings of Table 1
    assert set(scored) == {("last", eval_settings("meds", "tiny", "test"))}


def test_missing_runs_are_named_and_nothing_is_marked(tmp_path):
    text = to_markdown(meds_table2("tiny", "paper", [0, 1], Store(tmp_path)))
    assert text.count("missing") == 6 * 10 and "<ins>" not in text
    assert "No run stands behind this table yet" in text


def test_dapo_and_14_are_the_runs_of_table_1(tmp_path):
    runs = table2_runs("tiny", "paper", [0, 1], Store(tmp_path))
    assert [run.config.method for run in (runs["DAPO"][0], runs["14"][1])] == ["DAPO", "MEDS"]
    assert [run.config.seed for run in runs["28"]] == [0, 1]
    assert last_scores(runs["28"], 1) == [None, None]
