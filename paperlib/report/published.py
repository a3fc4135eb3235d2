"""The two papers' printed numbers, and tables of them.

Memory-R+: arXiv 2504.02273v1, Tables 1, 2 (AI-MO, 3 runs), 6. MEDS: arXiv 2604.11297, Tables 1, 2
and Figs. 5, 7. They were measured on the papers' models; a table of them stands by itself, never
beside ours as if the two could be compared.
"""

import json
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from typing import Any

import numpy as np

from paperlib.errors import check_choice
from paperlib.report.marking import bold_max, cohen_marks
from paperlib.report.tables import Column, Printed, Row, Table

_PAPERS = {
    "memory_r": ("memory_r_plus", "Memory-R+ (arXiv 2504.02273)"),
    "meds": ("meds", "MEDS (arXiv 2604.11297)"),
}


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
    check_choice("paper", paper, _PAPERS)
    text = files("paperlib.report").joinpath("published.json").read_text(encoding="utf-8")
    return json.loads(text)[_PAPERS[paper][0]]


def published_rows(paper: str, name: str = "table1") -> list[PublishedRow]:
    """The rows of "table1" or "table2" of a paper."""
    check_choice("table", name, ("table1", "table2"))
    return [
        PublishedRow(raw.pop("model"), raw.pop("method"), {
            benchmark: {metric: _cell(value) for metric, value in metrics.items()}
            for benchmark, metrics in raw.items()
        })
        for raw in published(paper)[name]
    ]  # fmt: skip


memory_r_table2 = partial(published_rows, "memory_r", "table2")
meds_table1 = partial(published_rows, "meds", "table1")
meds_table2 = partial(published_rows, "meds", "table2")


def _cell(raw: dict[str, float] | float | None) -> Printed | None:
    if raw is None:
        return None
    return Printed(**raw) if isinstance(raw, dict) else Printed(raw)


def meds_agreement() -> dict[str, Printed]:
    """Fig. 5 right: percent agreement of clusters with the LLM's categories, per variant.

    Only "14" is in the paper's text; the others were read off the figure and say so.
    """
    raw = published("meds")["figure5_right_agreement_percent"]
    del raw["_source"]
    return {name: Printed(value, read_off=name != "14") for name, value in raw.items()}


def meds_heatmap() -> tuple[list[str], list[int], np.ndarray]:
    """Fig. 7 as read off by others: response names, layer numbers, logits ``[5, layers]``."""
    raw = published("meds")["figure7_heatmap"]
    layers = [key for key in raw if key.startswith("layer_")]
    values = np.array([raw[key] for key in layers]).T
    return raw["rows"], [int(key.removeprefix("layer_")) for key in layers], values


def published_table(paper: str, name: str = "table1") -> Table:
    """The paper's own table ("table1" or "table2"), marked by the rule of its caption."""
    printed = published_rows(paper, name)
    columns = [Column(m, b) for b, metrics in printed[0].cells.items() for m in metrics]
    models = ", ".join(dict.fromkeys(row.model for row in printed))
    return Table(
        title=f"As printed in the paper, on the paper's models ({models}): "
        f"{_PAPERS[paper][1]}, Table {name[-1]}",
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
        rule=cohen_marks if paper == "memory_r" else bold_max,
    )
