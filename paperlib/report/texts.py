"""Tables of texts, such as what a model wrote, that show exactly these texts and no markup."""

from __future__ import annotations

from html import escape

import pandas as pd

from paperlib.markdown import escape_markdown


def html_table(frame: pd.DataFrame) -> str:
    """A table of strings for a notebook; texts keep their lines."""
    head = "".join(f"<th>{escape(name)}</th>" for name in frame)
    # in <pre>, where the notebook neither typesets mathematics nor folds white space
    body = "".join(
        "<tr>" + "".join(f"<td><pre>{escape(text)}</pre></td>" for text in row) + "</tr>\n"
        for row in frame.itertuples(index=False)
    )
    return f"<table>\n<tr>{head}</tr>\n{body}</table>"


def pipe_table(frame: pd.DataFrame) -> str:
    """A table in Markdown; a text is one line."""
    rows = [list(frame), ["---"] * frame.shape[1]]
    rows += [[escape_markdown(str(text)) for text in row] for row in frame.itertuples(index=False)]
    return "".join("| " + " | ".join(row) + " |\n" for row in rows)
