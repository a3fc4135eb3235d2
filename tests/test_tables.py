"""Cells, marking rules and the three writers."""

import csv
import math
from dataclasses import replace

import pytest

from paperlib.errors import UserError
from paperlib.report.cells import Cell, Column, Printed, Row, Table
from paperlib.report.marking import bold_max, cohen_marks, cohens_d, count_wins, mark_table
from paperlib.report.render import escape_latex, escape_markdown, to_csv, to_latex, to_markdown
from paperlib.report.tables import provenance_lines, write_table


def make_table():
    columns = (Column("last", "Level 1"), Column("best", "Level 1"), Column("all"))
    rows = (
        Row("Base", (Cell((20.0,)), None, Cell((1.0,))), "tiny"),
        Row("A_1", (Cell((30.0, 34.0, 38.0)), Cell((40.0, 44.0), 3), Cell(None, 3)), "tiny"),
        Row("B|2", (Cell((25.0, 25.0)), Cell((10.0, 12.0)), Cell((2.0,))), "tiny"),
    )
    return Table("Pass@1 & more, 50%", columns, rows, notes=("n_1",), footer=("c",))


def test_cell_mean_std_and_text():
    cell = Cell((30.0, 34.0, 38.0), expected=3)
    assert (cell.mean, cell.std, cell.n) == (34.0, 4.0, 3)  # ddof 1
    assert cell.text(1) == "34.0 ± 4.0"
    assert Cell((30.0,)).std is None and Cell((30.0,)).text(1) == "30.0"
    assert Cell(None, 3).text(1) == "missing" and Cell(None).mean is None
    # AIME24: one of three seeds solves one of 30 problems
    assert Cell((0.0, 0.0, 100 / 30)).text(1) == "1.1 ± 1.9"


def test_cell_from_seeds():
    assert Cell.from_seeds([40.0, None, 44.0]).text(1) == "42.0 ± 2.8 (2 of 3)"
    assert Cell.from_seeds([None, None]) == Cell(None, 2)
    assert Cell.from_seeds([0.0, 0.0]).text(1) == "0.0 ± 0.0"


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_cell_refuses_broken_values(bad):
    with pytest.raises(UserError, match="finite"):
        Cell((1.0, bad))


def test_row_must_fit():
    with pytest.raises(UserError, match="row 'x': 1 cells for 2 columns"):
        Table("t", (Column("a"), Column("b")), (Row("x", (None,)),))


def test_cohens_d():
    assert cohens_d((3.0, 1.0), (1.0, 3.0)) == pytest.approx(2 / math.sqrt(5))
    assert cohens_d((3.0, None), (1.0, 2.0)) == pytest.approx(math.sqrt(2))
    assert cohens_d((3.0, None), (1.0, 0.0)) == math.inf
    assert cohens_d((0.1 + 0.2, None), (0.3, None)) == 0.0


def test_cohen_marks():
    # Qwen, MATH-500 last: 22.3 is within d = 0.485 of 22.7, so two are bold and none underlined
    column = [(20.0, None), (18.7, 3.6), (22.7, 1.0), (21.4, 1.9), (22.3, 0.6)]
    assert cohen_marks(column) == ["", "", "bold", "", "bold"]
    # Falcon, GSM8K last: 34.6 is at d = 0.58 of 35.3, so the second is underlined
    column = [(32.9, None), (10.9, 4.6), (35.3, 0.2), (34.6, 1.7), (34.0, 0.6)]
    assert cohen_marks(column) == ["", "", "bold", "underline", ""]
    assert cohen_marks([(0.0, None), (0.0, 0.0)]) == ["", ""]
    assert cohen_marks([(0.0, 0.0), (3.0, 1.0), (0.0, 0.0)]) == ["", "bold", ""]
    assert cohen_marks([(1.0, None), (1.0, None)]) == ["bold", "bold"]
    assert cohen_marks([]) == []


def test_bold_max():
    assert bold_max([(1.0, 9.0), (2.0, 9.0), (3.0, None)]) == ["", "underline", "bold"]
    assert bold_max([(3.0, None), (3.0, None), (1.0, None)]) == ["bold", "bold", "underline"]
    assert bold_max([]) == []


def test_mark_table_within_groups_and_not_beside_missing_cells():
    table = mark_table(make_table(), bold_max)
    marks = [[cell.mark if cell else None for cell in row.cells] for row in table.rows]
    assert marks == [["", None, ""], ["bold", "bold", ""], ["underline", "underline", ""]]
    assert count_wins(table) == {"Base": 0, "A_1": 2, "B|2": 0}
    split = replace(
        make_table(),
        rows=tuple(replace(r, group=str(i)) for i, r in enumerate(make_table().rows)),
    )
    marks = [[cell.mark if cell else None for cell in row.cells] for row in
             mark_table(split, bold_max).rows]  # fmt: skip
    assert marks == [["bold", None, "bold"], ["bold", "bold", ""], ["bold"] * 3]


def test_markdown():
    lines = to_markdown(mark_table(make_table(), bold_max)).splitlines()
    assert lines == [
        "**Pass@1 &amp; more, 50%**",
        "",
        "| Model | Method | Level 1: last | Level 1: best | all |",
        "| --- | --- | ---: | ---: | ---: |",
        "| tiny | Base | 20.0 | – | 1.0 |",
        "|  | A\\_1 | **34.0 ± 4.0** | **42.0 ± 2.8 (2 of 3)** | missing |",
        "|  | B\\|2 | <ins>25.0 ± 0.0</ins> | <ins>11.0 ± 1.4</ins> | 2.0 |",
        "",
        "- n\\_1",
        "",
        "- c",
    ]


def test_markdown_escapes():
    assert escape_markdown("a*b\n<c> $x$ & |") == "a\\*b &lt;c&gt; \\$x\\$ &amp; \\|"


def test_latex():
    text = to_latex(mark_table(make_table(), bold_max), "x")
    assert "\\caption{Pass@1 \\& more, 50\\%}" in text
    assert "\\begin{tabular}{llrrr}" in text
    assert " &  & \\multicolumn{2}{c}{Level 1} & \\multicolumn{1}{c}{} \\\\" in text
    assert "\\cmidrule(lr){3-4}\n" in text
    assert (
        " & A\\_1 & \\textbf{34.0 $\\pm$ 4.0} & \\textbf{42.0 $\\pm$ 2.8 (2 of 3)} & missing \\\\"
        in text
    )
    assert text.count("\\midrule") == 1
    assert text.count("{") == text.count("}")


def test_latex_has_a_rule_between_groups_and_no_group_column_without_groups():
    rows = tuple(replace(r, group=g) for r, g in zip(make_table().rows, "aab", strict=True))
    assert to_latex(replace(make_table(), rows=rows), "x").count("\\midrule") == 2
    rows = tuple(replace(r, group="") for r in rows)
    assert "\nMethod & last & best & all \\\\" in to_latex(replace(make_table(), rows=rows), "x")


def test_latex_escapes():
    assert escape_latex("a_b\\{c}~^#$[|") == (
        "a\\_b\\textbackslash{}\\{c\\}\\textasciitilde{}\\textasciicircum{}\\#\\${[}\\textbar{}"
    )


def test_csv_is_tidy_and_exact():
    table = make_table()
    third = Cell((1 / 3, 2 / 3))
    printed = Printed(33.7, 2.5, read_off=True)
    table = replace(table, rows=(*table.rows, Row('C,"3"', (third, printed, Printed(1.0)))))
    rows = list(csv.DictReader(to_csv(table).splitlines()))
    assert len(rows) == 12
    by_key = {(r["row"], r["column_group"], r["column"]): r for r in rows}
    cell = by_key["A_1", "Level 1", "best"]
    assert (cell["status"], cell["n"], cell["expected"]) == ("measured", "2", "3")
    assert cell["values"] == "40.0 44.0"
    exact = by_key['C,"3"', "Level 1", "last"]
    assert tuple(float(v) for v in exact["values"].split()) == (1 / 3, 2 / 3)
    assert float(exact["mean"]) == third.mean and float(exact["std"]) == third.std
    assert by_key["A_1", "", "all"]["status"] == "missing"
    assert by_key["A_1", "", "all"]["mean"] == ""
    assert by_key["Base", "Level 1", "best"]["status"] == "not applicable"
    assert by_key['C,"3"', "Level 1", "best"]["status"] == "read off a figure"
    assert by_key['C,"3"', "", "all"]["status"] == "printed"


def test_write_table(tmp_path):
    folder = tmp_path / "new"
    paths = write_table(make_table(), folder, "table1")
    assert [p.name for p in paths] == ["table1.md", "table1.csv", "table1.tex"]
    assert sorted(p.name for p in folder.iterdir()) == sorted(p.name for p in paths)
    assert paths[0].read_text("utf-8") == to_markdown(make_table())
    assert "\\label{tab:table1}" in paths[2].read_text("utf-8")


def test_write_table_leaves_the_old_files_when_writing_fails(tmp_path, monkeypatch):
    paths = write_table(make_table(), tmp_path, "t")
    before = [p.read_bytes() for p in paths]

    def full_disk(*args, **kwargs):
        raise OSError("disk full")

    monkeypatch.setattr("pathlib.Path.write_text", full_disk)
    with pytest.raises(OSError, match="disk full"):
        write_table(replace(make_table(), title="new"), tmp_path, "t")
    assert [p.read_bytes() for p in paths] == before
    assert len(list(tmp_path.iterdir())) == 3


def test_provenance_lines():
    lines = provenance_lines(["b" * 40, "a" * 40, "b" * 40], "2 CPU cores", ["h2", "h1"], True)
    assert lines == (
        "Commit: aaaaaaaaaa, bbbbbbbbbb with uncommitted changes",
        "Machine: 2 CPU cores",
        "2 runs, config hashes: h1, h2",
    )
    assert provenance_lines([], "x", [], False) == ("No run stands behind this table yet.",)
