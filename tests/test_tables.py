"""Cells, the papers' rules of marking, and the three writers."""

import csv
import math
from dataclasses import replace

import pytest

from paperlib.errors import UserError
from paperlib.report.cells import Cell, Printed, bold_max, cohen_marks, cohens_d
from paperlib.report.tables import Column, Row, Table, to_latex, to_markdown, write_table


@pytest.fixture
def table():
    columns = (Column("last", "Level 1"), Column("best", "Level 1"), Column("all"))
    rows = (
        Row("Base", (Cell((20.0,)), None, Cell((1.0,))), "tiny"),
        Row("A_1", (Cell((30.0, 34.0, 38.0)), Cell((40.0, 44.0), 3), Cell(None, 3)), "tiny"),
        Row("B|2", (Cell((25.0, 25.0)), Cell((10.0, 12.0)), Cell((2.0,))), "tiny"),
    )
    return Table("Pass@1 & more, 50%", columns, rows, notes=("n_1",), footer=("c_1",),
                 rule=bold_max)  # fmt: skip


def regrouped(table, groups):
    rows = zip(table.rows, groups, strict=True)
    return replace(table, rows=tuple(replace(row, group=group) for row, group in rows))


def test_a_cell_is_mean_std_and_what_is_missing():
    cell = Cell((30.0, 34.0, 38.0), expected=3)
    assert (cell.mean, cell.std, cell.text(1)) == (34.0, 4.0, "34.0 ± 4.0")  # ddof 1
    assert Cell((30.0,)).std is None and Cell((30.0,)).text(1) == "30.0"
    assert Cell.from_seeds([40.0, None, 44.0]).text(1) == "42.0 ± 2.8 (2 of 3)"
    assert Cell.from_seeds([None, None]) == Cell(None, 2) and Cell(None, 2).text(1) == "missing"
    assert Cell.from_seeds([0.0, 0.0]).text(1) == "0.0 ± 0.0"


def test_what_is_no_table_is_refused():
    for bad in (math.nan, math.inf):
        with pytest.raises(UserError, match="finite"):
            Cell((1.0, bad))
    with pytest.raises(UserError, match="row 'x': 1 cells for 2 columns"):
        Table("t", (Column("a"), Column("b")), (Row("x", (None,)),))


def test_marks_by_the_rules_of_the_captions():
    assert cohens_d((3.0, 1.0), (1.0, 3.0)) == pytest.approx(2 / math.sqrt(5))
    assert cohens_d((3.0, None), (1.0, 0.0)) == math.inf
    assert cohens_d((0.1 + 0.2, None), (0.3, None)) == 0.0
    # Qwen, MATH-500 last: 22.3 is within d = 0.485 of 22.7, so two are bold and none underlined
    column = [(20.0, None), (18.7, 3.6), (22.7, 1.0), (21.4, 1.9), (22.3, 0.6)]
    assert cohen_marks(column) == ["", "", "bold", "", "bold"]
    # Falcon, GSM8K last: 34.6 is at d = 0.58 of 35.3, so the second is underlined
    column = [(32.9, None), (10.9, 4.6), (35.3, 0.2), (34.6, 1.7), (34.0, 0.6)]
    assert cohen_marks(column) == ["", "", "bold", "underline", ""]
    assert cohen_marks([(0.0, None), (0.0, 0.0)]) == ["", ""]
    assert cohen_marks([(0.0, 0.0), (3.0, 1.0), (0.0, 0.0)]) == ["", "bold", ""]
    assert bold_max([(1.0, 9.0), (2.0, 9.0), (3.0, None)]) == ["", "underline", "bold"]
    assert bold_max([(3.0, None), (3.0, None), (1.0, None)]) == ["bold", "bold", "underline"]


def test_marks_are_within_groups_and_not_beside_missing_cells(table):
    def marks(of):
        return of.frame()["mark"].to_numpy().reshape(3, 3).tolist()

    assert marks(table) == [["", "", ""], ["bold", "bold", ""], ["underline", "underline", ""]]
    assert marks(regrouped(table, "012")) == [["bold", "", "bold"], ["bold"] * 2 + [""],
                                              ["bold"] * 3]  # fmt: skip
    assert marks(replace(table, rule=None)) == [[""] * 3] * 3


def test_markdown(table):
    lines = to_markdown(table).replace("\N{NO-BREAK SPACE}", "~").splitlines()
    assert lines == [
        "**Pass@1 &amp; more, 50%**",
        "",
        "| Model | Method | Level 1: last | Level 1: best | all |",
        "| --- | --- | ---: | ---: | ---: |",
        "| tiny | Base | 20.0 | – | 1.0 |",
        "|  | A\\_1 | **34.0~±~4.0** | **42.0~±~2.8 (2 of 3)** | missing |",
        "|  | B\\|2 | <ins>25.0~±~0.0</ins> | <ins>11.0~±~1.4</ins> | 2.0 |",
        "",
        "- n\\_1",
        "",
        "<details><summary>Where these numbers come from</summary>",
        "",
        "- c\\_1",
        "",
        "</details>",
    ]


@pytest.mark.parametrize(("levels", "blocks"), [(4, 1), (5, 2)])  # of 8 columns, and of 10
def test_a_table_wider_than_a_page_is_one_for_each_kind_of_column(levels, blocks):
    columns = [Column(f"pass@{k}", f"Level {i}") for i in range(levels) for k in (1, 16)]
    cells = [Cell((10.0 * i, 10.0 * i)) for i in range(len(columns))]
    text = to_markdown(Table("t", tuple(columns), (Row("A", tuple(cells)),)))
    assert text.count("| Method |") == blocks
    if blocks == 2:
        assert "pass@16:\n\n| Method | Level 0 | Level 1 |" in text
        last = text.replace("\N{NO-BREAK SPACE}", "").splitlines()[-1]
        assert last == "| A | 10.0±0.0 | 30.0±0.0 | 50.0±0.0 | 70.0±0.0 | 90.0±0.0 |"


def test_latex(table):
    text = to_latex(table, "x")
    assert "\\caption{Pass@1 \\& more, 50\\%}" in text and "\\begin{tabular}{llrrr}" in text
    assert " &  & \\multicolumn{2}{c}{Level 1} & \\multicolumn{1}{c}{} \\\\" in text
    assert "\\cmidrule(lr){3-4}\n" in text and text.endswith("\\end{table}\n% c_1\n")
    assert (
        " & A\\_1 & \\textbf{34.0 $\\pm$ 4.0} & \\textbf{42.0 $\\pm$ 2.8 (2 of 3)} & missing \\\\"
        in text
    )
    assert text.count("\\midrule") == 1
    # a rule between groups, and no column of groups without groups
    assert to_latex(regrouped(table, "aab"), "x").count("\\midrule") == 2
    assert "\nMethod & last & best & all \\\\" in to_latex(regrouped(table, ["", "", ""]), "x")


def test_files_are_complete_and_exact(table, tmp_path):
    third, printed = Cell((1 / 3, 2 / 3)), Printed(33.7, 2.5, read_off=True)
    table = replace(table, rows=(*table.rows, Row('C,"3"', (third, printed, Printed(1.0)))))
    paths = write_table(table, tmp_path / "new", "table1")
    assert [p.name for p in paths] == ["table1.md", "table1.csv", "table1.tex"]
    assert sorted((tmp_path / "new").iterdir()) == sorted(paths)
    assert paths[0].read_text("utf-8") == to_markdown(table)
    rows = list(csv.DictReader(paths[1].read_text("utf-8").splitlines()))
    assert len(rows) == 12 and list(rows[0]) == [
        "row_group", "row", "column_group", "column", "status", "mean", "std", "n", "expected",
        "values", "mark",
    ]  # fmt: skip
    by_key = {(r["row"], r["column"]): r for r in rows}
    cell = by_key["A_1", "best"]
    assert (cell["status"], cell["n"], cell["expected"]) == ("measured", "2", "3")
    assert cell["values"] == "40.0 44.0"
    exact = by_key['C,"3"', "last"]
    assert tuple(float(v) for v in exact["values"].split()) == (1 / 3, 2 / 3)
    assert float(exact["mean"]) == third.mean and float(exact["std"]) == third.std
    assert (by_key["A_1", "all"]["status"], by_key["A_1", "all"]["mean"]) == ("missing", "")
    assert by_key["Base", "best"]["status"] == "not applicable"
    assert by_key['C,"3"', "best"]["status"] == "read off a figure"
    assert by_key['C,"3"', "all"]["status"] == "printed"
