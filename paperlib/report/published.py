"""The two papers' printed numbers, and tables of them.

Memory-R+: arXiv 2504.02273v1, Tables 1, 2, 6. MEDS: arXiv 2604.11297, Tables 1, 2 and Fig. 5. They
were measured on the papers' models; a table of them stands by itself, never beside ours as if the
two could be compared.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from paperlib.errors import check_choice
from paperlib.report.cells import Column, Printed, Row, Table
from paperlib.report.marking import bold_max, cohen_marks, mark_table

_KEYS = {"memory_r": "memory_r_plus", "meds": "meds"}


@dataclass(frozen=True)
class PublishedRow:
    """One printed row: ``cells[benchmark][metric]``, None where the paper leaves it empty.

    Metrics: "last" and "best" (percent, mean and std over 3 seeds; Base has one value, under
    "last") for Memory-R+; "pass@1" and "pass@128" (percent) for MEDS.
    """

    model: str
    method: str
    cells: dict[str, dict[str, Printed | None]]


def published(paper: str) -> dict[str, Any]:
    """All recorded numbers of "memory_r" or "meds" as plain JSON values, a fresh copy."""
    check_choice("paper", paper, _KEYS)
    text = files("paperlib.report").joinpath("published.json").read_text(encoding="utf-8")
    return json.loads(text)[_KEYS[paper]]


def memory_r_table1() -> list[PublishedRow]:
    """Trained on GSM8K: three models x (Base, R1, Cosine, Memory-R, Memory-R+)."""
    return [_row(raw) for raw in published("memory_r")["table1"]]


def memory_r_table2() -> list[PublishedRow]:
    """Trained on AI-MO, Memory-R+ with K = 1, 10, 20, 30 retrieved queries."""
    raw = published("memory_r")["table2"]
    return [
        PublishedRow(
            "Qwen2.5-0.5B-Instruct",
            f"K = {k}",
            {
                benchmark: {metric: _cell(raw[benchmark][metric][i]) for metric in ("last", "best")}
                for benchmark in ("GSM8K", "MATH-500", "AIME24")
            },
        )
        for i, k in enumerate(raw["K"])
    ]


def meds_table1() -> list[PublishedRow]:
    """Three models x (Base, GRPO, DAPO, GRPO w/ Entropy Adv, MEDS), five benchmarks, Average."""
    return [_row(raw) for raw in published("meds")["table1"]]


def meds_table2() -> list[PublishedRow]:
    """Feature variants on Qwen2.5-Math-7B."""
    return [_row(raw) for raw in published("meds")["table2"]]


def meds_agreement() -> dict[str, Printed]:
    """Fig. 5 right: percent agreement of clusters with the LLM's categories, per variant.

    Only "14" is in the paper's text; the others were read off the figure and say so.
    """
    raw = published("meds")["figure5_right_agreement_percent"]
    return {
        name: Printed(value, read_off=name != "14")
        for name, value in raw.items()
        if not name.startswith("_")
    }


def _row(raw: dict[str, Any]) -> PublishedRow:
    cells = {
        benchmark: {metric: _cell(value) for metric, value in metrics.items()}
        for benchmark, metrics in raw.items()
        if benchmark not in ("model", "method")
    }
    return PublishedRow(raw["model"], raw["method"], cells)


def _cell(raw: dict[str, float] | float | None) -> Printed | None:
    if raw is None:
        return None
    return Printed(raw["mean"], raw.get("std")) if isinstance(raw, dict) else Printed(raw)


_TABLES = {
    ("memory_r", "table1"): (memory_r_table1, "Memory-R+ (arXiv 2504.02273), Table 1"),
    ("memory_r", "table2"): (memory_r_table2, "Memory-R+ (arXiv 2504.02273), Table 2"),
    ("meds", "table1"): (meds_table1, "MEDS (arXiv 2604.11297), Table 1"),
    ("meds", "table2"): (meds_table2, "MEDS (arXiv 2604.11297), Table 2"),
}


def published_table(paper: str, name: str = "table1") -> Table:
    """The paper's own table ("table1" or "table2"), marked by the rule of its caption.

    Raises UserError for an unknown paper or table.
    """
    check_choice("paper", paper, _KEYS)
    check_choice("table", name, ("table1", "table2"))
    rows, source = _TABLES[paper, name]
    printed = rows()
    columns = [Column(m, b) for b, metrics in printed[0].cells.items() for m in metrics]
    models = ", ".join(dict.fromkeys(row.model for row in printed))
    table = Table(
        title=f"As printed in the paper, on the paper's models ({models}): {source}",
        columns=tuple(columns),
        rows=tuple(
            Row(row.method, tuple(row.cells[c.group][c.name] for c in columns), group=row.model)
            for row in printed
        ),
        notes=(
            "The paper's numbers, in percent. They were not measured here, and are not to be "
            "compared with results on other models or data.",
            "Bold and underline are recomputed from these numbers by the rule of the caption.",
        ),
        decimals=1 if paper == "memory_r" else 2,
    )
    return mark_table(table, cohen_marks if paper == "memory_r" else bold_max)
