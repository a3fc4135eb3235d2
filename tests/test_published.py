"""The recorded numbers of the papers: typed, complete, and as the papers say in words."""

import pytest

from paperlib.errors import UserError
from paperlib.report.published import (
    meds_agreement,
    meds_heatmap,
    meds_table1,
    meds_table2,
    memory_r_table2,
    published,
    published_rows,
    published_table,
)
from paperlib.report.tables import Printed, to_markdown


def find(rows, model, method):
    (row,) = [r for r in rows if (r.model, r.method) == (model, method)]
    return row.cells


def test_memory_r_table1():
    rows = published_rows("memory_r")
    assert len(rows) == 15
    qwen = find(rows, "Qwen2.5-0.5B-Instruct", "Memory-R+")
    assert qwen["GSM8K"] == {"last": Printed(33.7, 2.5), "best": Printed(34.0, 2.3)}
    assert find(rows, "Llama-3.2-1B-Instruct", "R1")["AIME24"]["last"] == Printed(3.3, 0.0)
    base = find(rows, "Falcon3-1B-Instruct", "Base")
    assert base["MATH-500"] == {"last": Printed(12.2), "best": None}
    for row in rows:
        assert list(row.cells) == ["GSM8K", "MATH-500", "AIME24"]
        assert all(list(metrics) == ["last", "best"] for metrics in row.cells.values())


def test_memory_r_table2_k20_is_best_on_math500_last():
    rows = memory_r_table2()
    assert [r.method for r in rows] == ["K = 1", "K = 10", "K = 20", "K = 30"]
    last = [r.cells["MATH-500"]["last"].mean for r in rows]
    assert last == [22.7, 23.7, 25.3, 25.0]


def test_memory_r_wins_by_the_rule_of_the_caption():
    cells = published_table("memory_r").frame()
    wins = (cells["mark"] == "bold").groupby(cells["row"]).sum()
    assert wins.to_dict() == {"Base": 0, "R1": 2, "Cosine": 7, "Memory-R": 7, "Memory-R+": 9}
    named = published("memory_r")["wins_named_in_text"]
    assert [named[m] for m in ("R1", "Cosine", "Memory-R", "Memory-R+")] == [2, 7, 8, 10]


def test_meds_table1():
    rows = meds_table1()
    assert len(rows) == 15
    # the paper's "+4.13" is over Base
    meds, base = (find(rows, "Qwen3-1.7B", m)["Average"]["pass@1"].mean for m in ("MEDS", "Base"))
    assert meds - base == pytest.approx(4.13)


def test_meds_table2_14_layers_are_the_row_of_table1():
    rows = {r.method: r for r in meds_table2()}
    assert len(rows) == 6
    assert rows["MEDS-14"].cells == find(meds_table1(), "Qwen2.5-Math-7B", "MEDS")


def test_agreement_says_what_was_read_off_the_figure():
    agreement = meds_agreement()
    assert agreement["14"] == Printed(61.2) and agreement["14"].text(2) == "61.20"
    assert [name for name, cell in agreement.items() if cell.read_off] == [
        "single cluster", "28-diff", "14-diff", "28",
    ]  # fmt: skip
    assert agreement["28"].text(2) == "53.87†"


def test_the_heatmap_of_fig_7():
    names, layers, values = meds_heatmap()
    assert names == ["A1", "A2", "B1", "B2", "B3"] and layers == [23, 24, 25, 27, 28]
    assert values.shape == (5, 5) and values[0, 0] == -17.5 and values[4, 0] == -19.5


def test_published_table_says_whose_numbers_they_are():
    text = to_markdown(published_table("meds"))
    assert text.startswith("**As printed in the paper, on the paper's models (Qwen3-1.7B, ")
    assert "They were not measured here" in text
    assert "| **66.72** | **84.61** |" in text
    assert "recomputed" in text


def test_unknown_names():
    with pytest.raises(UserError, match="valid: memory_r, meds"):
        published("grpo")
    with pytest.raises(UserError, match="valid: table1, table2"):
        published_table("meds", "table9")
