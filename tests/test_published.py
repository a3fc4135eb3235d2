"""The recorded numbers of the papers: complete, and as the papers say in words."""

import pytest

from paperlib.errors import UserError
from paperlib.report.published import published, published_table
from paperlib.report.tables import to_markdown


@pytest.mark.parametrize(("paper", "name", "rows", "printed"), [
    ("memory_r", "table1", 15, {
        ("Qwen2.5-0.5B-Instruct", "Memory-R+", "GSM8K", "last"): "33.7 ± 2.5",
        ("Llama-3.2-1B-Instruct", "R1", "AIME24", "last"): "3.3 ± 0.0",
        ("Falcon3-1B-Instruct", "Base", "MATH-500", "last"): "12.2",
        ("Falcon3-1B-Instruct", "Base", "MATH-500", "best"): "–",
    }),
    ("memory_r", "table2", 4, {  # K = 20 is best
        ("Qwen2.5-0.5B-Instruct", f"K = {k}", "MATH-500", "last"): text for k, text in
        ((1, "22.7 ± 0.1"), (10, "23.7 ± 0.5"), (20, "25.3 ± 0.6"), (30, "25.0 ± 0.4"))
    }),
    ("meds", "table1", 15, {  # the paper's "+4.13" is over Base
        ("Qwen3-1.7B", "MEDS", "Average", "pass@1"): "52.49",
        ("Qwen3-1.7B", "Base", "Average", "pass@1"): "48.36",
    }),
    ("meds", "table2", 6, {}),
])  # fmt: skip
def test_tables(paper, name, rows, printed):
    table = published_table(paper, name)
    assert len(table.rows) == rows
    cells = table.frame().set_index(["row_group", "row", "column_group", "column"])["text"]
    assert {place: cells[place] for place in printed} == printed


def test_memory_r_wins_by_the_rule_of_the_caption():
    cells = published_table("memory_r").frame()
    wins = (cells["mark"] == "bold").groupby(cells["row"]).sum()
    assert wins.to_dict() == {"Base": 0, "R1": 2, "Cosine": 7, "Memory-R": 7, "Memory-R+": 9}
    named = published("memory_r")["wins_named_in_text"]
    assert [named[m] for m in ("R1", "Cosine", "Memory-R", "Memory-R+")] == [2, 7, 8, 10]


def test_meds_table2_14_layers_are_the_row_of_table1():
    (one,) = [r for r in published_table("meds", "table2").rows if r.label == "MEDS-14"]
    first = {(row.group, row.label): row for row in published_table("meds").rows}
    assert one.cells == first[one.group, "MEDS"].cells


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
