"""Texts of others, such as what a model wrote, that tables show as they are and not as markup."""

from collections.abc import Iterable
from html import escape

import pandas as pd

from paperlib.markdown import escape_markdown

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
