"""A table as Markdown, LaTeX and tidy CSV text."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator

from paperlib.markdown import escape_markdown
from paperlib.report.cells import MISSING, NOT_APPLICABLE, Cell, Printed, Row, Table

_LATEX = {
    "\\": r"\textbackslash{}",
    "[": "{[}",  # after the end of a row it would open an option
    "{": r"\{",
    "}": r"\}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "±": r"$\pm$",
    "†": r"$\dagger$",
    "–": "--",
    "×": r"$\times$",
    "≥": r"$\geq$",
    "≤": r"$\leq$",
}


def escape_latex(text: str) -> str:
    """One line of LaTeX that shows exactly ``text``."""
    return "".join(_LATEX.get(char, char) for char in " ".join(text.split()))


def to_markdown(table: Table) -> str:
    """A pipe table with "group: name" headers; title above, notes and footer below."""
    heads = [f"{c.group}: {c.name}" if c.group else c.name for c in table.columns]
    lines = [
        f"**{escape_markdown(table.title)}**",
        "",
        _pipes([escape_markdown(h) for h in _row_headers(table) + heads]),
        _pipes(["---"] * len(_row_headers(table)) + ["---:"] * len(heads)),
    ]
    for labels, row in _labelled(table):
        cells = [_markdown_cell(cell, table.decimals) for cell in row.cells]
        lines.append(_pipes([escape_markdown(label) for label in labels] + cells))
    for block in (table.notes, table.footer):
        if block:
            lines += ["", *(f"- {escape_markdown(line)}" for line in block)]
    return "\n".join(lines) + "\n"


def _pipes(fields: list[str]) -> str:
    return "| " + " | ".join(fields) + " |"


def _row_headers(table: Table) -> list[str]:
    return list(table.row_headers if table.grouped else table.row_headers[1:])


def _labelled(table: Table) -> Iterator[tuple[list[str], Row]]:
    """Each row with its label fields; a group's name stands in its first row only."""
    previous = None
    for row in table.rows:
        group = [row.group if row.group != previous else ""] if table.grouped else []
        yield [*group, row.label], row
        previous = row.group


def _plain_cell(cell: Cell | Printed | None, decimals: int) -> str:
    return NOT_APPLICABLE if cell is None else cell.text(decimals)


def _markdown_cell(cell: Cell | Printed | None, decimals: int) -> str:
    # numbers and "(2 of 3)" need no escape; ins is the underline that GitHub and Jupyter keep
    text = _plain_cell(cell, decimals)
    mark = "" if cell is None else cell.mark
    return {"bold": f"**{text}**", "underline": f"<ins>{text}</ins>"}.get(mark, text)


def to_latex(table: Table, label: str) -> str:
    """A ``table`` environment for booktabs, with ``\\label{tab:<label>}``."""
    heads = _row_headers(table)
    lines = [
        "% needs \\usepackage{booktabs}",
        "\\begin{table}[t]",
        "\\centering",
        f"\\caption{{{escape_latex(table.title)}}}",
        f"\\label{{tab:{label}}}",
        f"\\begin{{tabular}}{{{'l' * len(heads)}{'r' * len(table.columns)}}}",
        "\\toprule",
        *_latex_groups(table, len(heads)),
        _latex_row([escape_latex(text) for text in heads + [c.name for c in table.columns]]),
        "\\midrule",
    ]
    for i, (labels, row) in enumerate(_labelled(table)):
        if i and table.grouped and labels[0]:
            lines.append("\\midrule")
        cells = [_latex_cell(cell, table.decimals) for cell in row.cells]
        lines.append(_latex_row([escape_latex(text) for text in labels] + cells))
    lines += ["\\bottomrule", "\\end{tabular}"]
    lines += [f"\\par\\footnotesize {escape_latex(line)}" for line in table.notes + table.footer]
    return "\n".join([*lines, "\\end{table}"]) + "\n"


def _latex_row(fields: list[str]) -> str:
    return " & ".join(fields) + r" \\"


def _latex_groups(table: Table, offset: int) -> list[str]:
    """The line of group names over their columns and the rules under them."""
    spans: list[tuple[str, int, int]] = []  # name, first column, last column, counted from 1
    for number, column in enumerate(table.columns, start=offset + 1):
        if spans and spans[-1][0] == column.group:
            spans[-1] = (column.group, spans[-1][1], number)
        else:
            spans.append((column.group, number, number))
    if not any(name for name, _, _ in spans):
        return []
    fields = [""] * offset
    fields += [f"\\multicolumn{{{b - a + 1}}}{{c}}{{{escape_latex(name)}}}" for name, a, b in spans]
    rules = "".join(f"\\cmidrule(lr){{{a}-{b}}}" for name, a, b in spans if name)
    return [_latex_row(fields), rules]


def _latex_cell(cell: Cell | Printed | None, decimals: int) -> str:
    text = escape_latex(_plain_cell(cell, decimals))
    mark = "" if cell is None else cell.mark
    return {"bold": f"\\textbf{{{text}}}", "underline": f"\\underline{{{text}}}"}.get(mark, text)


def to_csv(table: Table) -> str:
    """Tidy: a line per cell, values at full precision, the per-seed ones separated by spaces."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(
        ["row_group", "row", "column_group", "column", "status", "mean", "std", "n", "expected",
         "values", "mark"]
    )  # fmt: skip
    for row in table.rows:
        for column, cell in zip(table.columns, row.cells, strict=True):
            writer.writerow([row.group, row.label, column.group, column.name, *_tidy(cell)])
    return out.getvalue()


def _tidy(cell: Cell | Printed | None) -> list[object]:
    """Status, mean, std, n, expected, values, mark."""
    if cell is None:
        return ["not applicable", "", "", "", "", "", ""]
    mean, std = ("" if v is None else repr(v) for v in (cell.mean, cell.std))
    if isinstance(cell, Printed):
        status = "read off a figure" if cell.read_off else "printed"
        return [status, mean, std, "", "", "", cell.mark]
    status = "measured" if cell.values else MISSING
    values = " ".join(repr(v) for v in cell.values or ())
    expected = "" if cell.expected is None else cell.expected
    return [status, mean, std, cell.n, expected, values, cell.mark]
