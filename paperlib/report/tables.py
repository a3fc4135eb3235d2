"""Tables of cells over seeds, and how they are written: Markdown, LaTeX and tidy CSV."""

import tomllib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from itertools import groupby
from pathlib import Path
from typing import Any

import pandas as pd

from paperlib.errors import UserError
from paperlib.files import write_texts
from paperlib.markdown import escape_markdown
from paperlib.report.cells import Cell, Printed, Rule

# by what they are about: how to read a table
NOTES: dict[str, Any] = tomllib.loads(
    files("paperlib.report").joinpath("notes.toml").read_text(encoding="utf-8")
)
IMPOSSIBLE = "not applicable"  # such as Base at its "best" checkpoint
TIDY = ["row_group", "row", "column_group", "column", "status", "mean", "std", "n", "expected",
        "values", "mark"]  # fmt: skip
WIDE = 80  # characters of numbers in one row of Markdown, from which on a page breaks them


@dataclass(frozen=True)
class Column:
    """``group`` spans the neighbouring columns that share it, e.g. "Level 1" over last and best."""

    name: str
    group: str = ""


@dataclass(frozen=True)
class Row:
    """``cells`` in the order of the columns; None is a cell that cannot exist, shown as a dash.

    ``group`` (such as the model) is the set of rows within which cells compete for marks.
    """

    label: str
    cells: tuple[Cell | Printed | None, ...]
    group: str = ""


@dataclass(frozen=True)
class Table:
    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()  # how to read it
    footer: tuple[str, ...] = ()  # where it comes from
    row_headers: tuple[str, str] = ("Model", "Method")  # of Row.group and Row.label
    decimals: int = 1
    rule: Rule | None = None  # marks a column within a group of rows; without, nothing is marked

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row.cells) != len(self.columns):
                raise UserError(
                    f"table {self.title!r}, row {row.label!r}: {len(row.cells)} cells for "
                    f"{len(self.columns)} columns"
                )

    @property
    def heads(self) -> list[str]:
        """Of the columns of labels; groups have one only where there are any."""
        return list(self.row_headers[0 if any(row.group for row in self.rows) else 1 :])

    def frame(self) -> pd.DataFrame:
        """A line per cell, row by row: where it stands, its values, its ``mark`` and ``text``."""
        cells = [
            (row.group, row.label, column.group, column.name, *_of_cell(cell, self.decimals))
            for row in self.rows
            for column, cell in zip(self.columns, row.cells, strict=True)
        ]
        data = pd.DataFrame(cells, columns=[*TIDY[:-1], "text"], dtype=object)
        data["mark"] = ""
        competing = data[data["status"] != IMPOSSIBLE]
        for _, cells in competing.groupby(["row_group", "column_group", "column"]):
            # beside a missing cell nobody knows who would have won
            if self.rule and cells["mean"].notna().all():
                pairs = list(zip(cells["mean"], cells["std"], strict=True))
                data.loc[cells.index, "mark"] = self.rule(pairs)
        return data


def _of_cell(cell: Cell | Printed | None, decimals: int) -> tuple[object, ...]:
    """From "status" to "text"."""
    if cell is None:
        return IMPOSSIBLE, None, None, None, None, None, "–"
    seeds: tuple[object, ...] = (None, None, None)
    if isinstance(cell, Cell):
        values = " ".join(map(str, cell.values or ()))
        seeds = len(cell.values or ()), cell.expected, values
    return cell.status, cell.mean, cell.std, *seeds, cell.text(decimals)


# --- on paper -------------------------------------------------------------------------------

MARKDOWN = {"": "{}", "bold": "**{}**", "underline": "<ins>{}</ins>"}  # GitHub and Jupyter keep ins
LATEX = {"": "{}", "bold": r"\textbf{{{}}}", "underline": r"\underline{{{}}}"}


def write_table(table: Table, folder: Path, stem: str) -> list[Path]:
    """Write ``<stem>.md``, ``.csv`` (tidy, at full precision) and ``.tex`` into ``folder``, all or
    none of them."""
    csv = table.frame().to_csv(columns=TIDY, index=False, lineterminator="\n")
    texts = {".md": to_markdown(table), ".csv": csv, ".tex": to_latex(table, stem)}
    return write_texts(folder, stem, texts)


def _lines(table: Table, looks: dict[str, str], escape: Callable[[str], str]) -> list[list[str]]:
    """Each row as its labels, a group's in its first row only, and its cells."""
    data = table.frame()
    cells = [looks[m].format(escape(t)) for t, m in zip(data["text"], data["mark"], strict=True)]
    width, lines, previous = len(table.columns), [], None
    for i, row in enumerate(table.rows):
        labels = ["" if row.group == previous else row.group, row.label][-len(table.heads) :]
        lines.append([*map(escape, labels), *cells[i * width : (i + 1) * width]])
        previous = row.group
    return lines


def to_markdown(table: Table) -> str:
    """Title, pipe table, notes; what it comes from is folded.

    A table too wide for a page whose groups of columns are alike ("last" and "best" of each level)
    becomes one table for each of the names.
    """

    def whole(text: str) -> str:  # a number and its spread stay on one line
        return escape_markdown(text).replace(" ± ", "\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}")

    first, lines = len(table.heads), _lines(table, MARKDOWN, whole)
    out = [f"**{escape_markdown(table.title)}**"]
    for name, places in _blocks(table).items():
        columns = [table.columns[i] for i in places]
        full = [": ".join(filter(None, (c.group, c.name))) for c in columns]
        heads = table.heads + ([c.group for c in columns] if name else full)
        out += ["", f"{escape_markdown(name)}:"] if name else []
        out += ["", pipes(map(escape_markdown, heads))]
        out.append(pipes(["---"] * first + ["---:"] * len(places)))
        out += [pipes(line[:first] + [line[first + i] for i in places]) for line in lines]
    out += ["", *(f"- {escape_markdown(line)}" for line in table.notes)] if table.notes else []
    if table.footer:
        out += ["", "<details><summary>Where these numbers come from</summary>", ""]
        out += [*(f"- {escape_markdown(line)}" for line in table.footer), "", "</details>"]
    return "\n".join(out) + "\n"


def _blocks(table: Table) -> dict[str, list[int]]:
    """The columns of each block of :func:`to_markdown`; under "" if one holds them all."""
    places: dict[str, list[int]] = {}
    for i, column in enumerate(table.columns):
        places.setdefault(column.name, []).append(i)
    groups = [[table.columns[i].group for i in of_name] for of_name in places.values()]
    texts = table.frame().assign(size=lambda data: data["text"].str.len())
    size = texts.groupby(["column_group", "column"])["size"].max().sum()
    alike = all(len(of_name) > 1 and of_name == groups[0] for of_name in groups)
    return places if alike and size > WIDE else {"": list(range(len(table.columns)))}


def to_latex(table: Table, label: str) -> str:
    """A ``table`` for booktabs with ``\\label{tab:<label>}``; what it comes from in comments."""
    first = len(table.heads)
    groups, rules, start = [""] * first, "", first + 1
    for name, columns in groupby(table.columns, key=lambda column: column.group):
        end = start + len(list(columns)) - 1
        groups.append(f"\\multicolumn{{{end - start + 1}}}{{c}}{{{escape_latex(name)}}}")
        rules += f"\\cmidrule(lr){{{start}-{end}}}" if name else ""
        start = end + 1
    out = [
        "% needs \\usepackage{booktabs}", "\\begin{table}[t]", "\\centering",
        f"\\caption{{{escape_latex(table.title)}}}", f"\\label{{tab:{label}}}",
        f"\\begin{{tabular}}{{{'l' * first}{'r' * len(table.columns)}}}", "\\toprule",
        *([" & ".join(groups) + " \\\\", rules] if rules else []),
        " & ".join(map(escape_latex, table.heads + [c.name for c in table.columns])) + " \\\\",
    ]  # fmt: skip
    for i, line in enumerate(_lines(table, LATEX, escape_latex)):
        out += ["\\midrule"] if i == 0 or (first > 1 and line[0]) else []
        out.append(" & ".join(line) + " \\\\")
    out += ["\\bottomrule", "\\end{tabular}"]
    out += [f"\\par\\footnotesize {escape_latex(line)}" for line in table.notes]
    out += ["\\end{table}", *(f"% {' '.join(line.split())}" for line in table.footer)]
    return "\n".join(out) + "\n"


# --- texts of others, such as what a model wrote, as they are and not as markup ------------------

_LATEX = str.maketrans({
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}",
    "{": r"\{", "}": r"\}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
    "[": "{[}",  # after the end of a row it would open an option
    "±": r"$\pm$", "†": r"$\dagger$", "–": "--", "×": r"$\times$", "≥": r"$\geq$", "≤": r"$\leq$",
})  # fmt: skip


def escape_latex(text: str) -> str:
    """One line of LaTeX that shows exactly ``text``."""
    return " ".join(text.split()).translate(_LATEX)


def pipes(fields: Iterable[str]) -> str:
    """A row of a Markdown table; the fields are Markdown."""
    return "| " + " | ".join(fields) + " |"


def pipe_table(frame: pd.DataFrame) -> str:
    """A table of strings in Markdown; a text is one line."""
    rows = [list(frame), ["---"] * frame.shape[1]]
    rows += [map(escape_markdown, map(str, row)) for row in frame.itertuples(index=False)]
    return "".join(pipes(row) + "\n" for row in rows)


def html_table(frame: pd.DataFrame) -> str:
    """A table of strings for a notebook; texts keep their lines."""
    head = "".join(f"<th>{escape(name)}</th>" for name in frame)
    # in <pre>, where the notebook neither typesets mathematics nor folds white space
    body = "".join(
        "<tr>" + "".join(f"<td><pre>{escape(text)}</pre></td>" for text in row) + "</tr>\n"
        for row in frame.itertuples(index=False)
    )
    return f"<table>\n<tr>{head}</tr>\n{body}</table>"
