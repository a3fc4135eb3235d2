"""Tables on disk (Markdown, CSV, LaTeX) and the lines that say where their numbers come from."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from paperlib.files import write_texts
from paperlib.report.cells import Cell, Column, Printed, Row, Table
from paperlib.report.marking import bold_max, cohen_marks, count_wins, mark_table
from paperlib.report.published import published_table
from paperlib.report.render import to_csv, to_latex, to_markdown

__all__ = [
    "Cell", "Column", "Printed", "Row", "Table", "bold_max", "cohen_marks", "count_wins",
    "mark_table", "provenance_lines", "published_table", "to_markdown", "write_table",
]  # fmt: skip


def write_table(table: Table, folder: Path, stem: str) -> list[Path]:
    """Write ``<stem>.md``, ``<stem>.csv`` and ``<stem>.tex`` into ``folder`` (made if needed).

    Each file is written under a temporary name and renamed, so that a reader never meets half a
    table; all three are written before the first is renamed.
    """
    texts = {".md": to_markdown(table), ".csv": to_csv(table), ".tex": to_latex(table, stem)}
    return write_texts(folder, stem, texts)


def provenance_lines(
    commits: Iterable[str], machine: str, config_hashes: Iterable[str], dirty: bool
) -> tuple[str, ...]:
    """Footer: the commits and configs of the runs behind a table, and the machine.

    ``dirty``: some run was made with uncommitted changes.
    """
    hashes = sorted(set(config_hashes))
    if not hashes:
        return ("No run stands behind this table yet.",)
    commit = ", ".join(c[:10] for c in sorted(set(commits))) or "unknown"
    return (
        f"Commit: {commit}{' with uncommitted changes' if dirty else ''}",
        f"Machine: {machine}",
        f"{len(hashes)} runs, config hashes: {', '.join(hashes)}",
    )
