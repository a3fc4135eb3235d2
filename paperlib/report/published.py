"""The two papers' printed numbers, and tables of them.

Memory-R+: arXiv 2504.02273v1, Tables 1, 2 (AI-MO, 3 runs), 6. MEDS: arXiv 2604.11297, Tables 1, 2
and Figs. 5, 7. They were measured on the papers' models; a table of them stands by itself, never
beside ours as if the two could be compared.
"""

import json
import statistics
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from paperlib.errors import check_choice
from paperlib.report.cells import bold_max, cohen_marks
from paperlib.report.difference import Difference
from paperlib.report.tables import NOTES, Column, Printed, Row, Table

_PAPERS = {"memory_r": "Memory-R+ (arXiv 2504.02273)", "meds": "MEDS (arXiv 2604.11297)"}


def published(paper: str) -> dict[str, Any]:
    """All recorded numbers of "memory_r" or "meds" as plain JSON values, a fresh copy."""
    check_choice("paper", paper, _PAPERS)
    text = files("paperlib.report").joinpath("published.json").read_text(encoding="utf-8")
    return json.loads(text)[paper]


def published_table(paper: str, name: str = "table1") -> Table:
    """The paper's own table ("table1" or "table2"), marked by the rule of its caption.

    Columns of Memory-R+: "last" and "best" of each benchmark (percent, mean and std over 3 seeds;
    Base has one value, under "last"); of MEDS: "pass@1" and "pass@128" (percent).
    """
    check_choice("table", name, ("table1", "table2"))
    printed = published(paper)[name]
    benchmarks = [key for key in printed[0] if key not in ("model", "method")]
    columns = tuple(Column(metric, b) for b in benchmarks for metric in printed[0][b])
    rows = []
    for row in printed:
        cells = (row[column.group][column.name] for column in columns)
        cells = tuple(Printed(*cell) if cell else None for cell in cells)
        rows.append(Row(row["method"], cells, row["model"]))
    models = ", ".join(dict.fromkeys(row.group for row in rows))
    return Table(
        title=f"As printed in the paper, on the paper's models ({models}): "
        f"{_PAPERS[paper]}, Table {name[-1]}",
        columns=columns,
        rows=tuple(rows),
        notes=tuple(NOTES["published"]),
        decimals=1 if paper == "memory_r" else 2,
        rule=cohen_marks if paper == "memory_r" else bold_max,
    )


def printed_gaps(
    paper: str, method: str, rival: str, benchmark: str, column: str
) -> dict[str, float]:
    """``method - rival`` in a column of the paper's Table 1 ("GSM8K", "last"; "Average", "pass@1"),
    in points, by model."""
    cells = {(r["model"], r["method"]): r[benchmark][column] for r in published(paper)["table1"]}
    models = dict.fromkeys(model for model, _ in cells)
    return {m: round(cells[m, method][0] - cells[m, rival][0], 2) for m in models}


def margin(gaps: Mapping[str, float]) -> float:
    """The smallest effect that would matter: the median printed gap, but no less than 3 points."""
    return max(3.0, statistics.median(map(abs, gaps.values())))


def side_by_side(rows: Mapping[str, tuple[Mapping[str, float], Difference | None]]) -> str:
    """Markdown: of each difference the paper's gaps by model, ours with its interval, and on how
    many of the paper's models ours has the printed direction."""
    models = list(next(iter(rows.values()))[0])
    lines = [f"| points | {' | '.join(models)} | ours | same direction |",
             "|---" * (len(models) + 3) + "|"]  # fmt: skip
    for name, (gaps, found) in rows.items():
        ours, same = "missing", "–"
        if found:
            ours = f"{found.mean:+.1f}"
            if found.low is not None:
                ours += f" [{found.low:+.1f}, {found.high:+.1f}]"
            same = f"{sum(gap * found.mean > 0 for gap in gaps.values())} of {len(gaps)}"
        printed = " | ".join(f"{gaps[model]:+.2f}" for model in models)
        lines.append(f"| {name} | {printed} | {ours} | {same} |")
    return "\n".join(lines) + "\n"
