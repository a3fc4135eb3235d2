"""Statements of Memory-R+ (arXiv 2504.02273v1) held against its printed numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from paperlib.report.audit import (
    INCONSISTENT,
    PROBLEMS,
    UNCHECKED,
    Audited,
    columns_by_method,
    possible,
    tidy,
    verdict,
)
from paperlib.report.marking import cohen_marks

MEMORIES = ("Memory-R", "Memory-R+")
SHORT = {"Qwen2.5-0.5B-Instruct": "Qwen", "Falcon3-1B-Instruct": "Falcon",
         "Llama-3.2-1B-Instruct": "Llama"}


def memory_r_audit(data: dict[str, Any]) -> list[Audited]:
    """Statements of Memory-R+ (arXiv 2504.02273v1) against ``data = published("memory_r")``."""
    cells = tidy(data["table1"])
    cells["model"] = cells["model"].replace(SHORT)
    k_rows = tidy(_table2_rows(data["table2"]))
    rows = [
        _wins(cells, data["wins_named_in_text"]),
        *_rivals(cells),
        *_gains(cells),
        _best_not_below_last(cells),
        _possible_cells(cells, "Table 1"),
        _possible_cells(k_rows, "Table 2"),
        *_number_of_neighbours(k_rows),
        *_behaviour(data),
    ]
    return [Audited("Memory-R+", *row) for row in rows]


def _table2_rows(raw: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"model": "Qwen", "method": f"K = {k}",
         **{name: {m: raw[name][m][i] for m in ("last", "best")}
            for name in ("GSM8K", "MATH-500", "AIME24")}}
        for i, k in enumerate(raw["K"])
    ]  # fmt: skip


def _bold(cells: pd.DataFrame) -> pd.Series:
    """Which cells the rule of the caption makes bold (cohen_marks)."""
    marks = pd.Series("", index=cells.index)
    for _, column in cells.groupby(["model", "benchmark", "metric"]):
        pairs = [(m, None if np.isnan(s) else s)
                 for m, s in zip(column["mean"], column["std"], strict=True)]
        marks[column.index] = cohen_marks(pairs)
    return marks == "bold"


def _wins(cells: pd.DataFrame, raw: dict[str, Any]) -> tuple[str, ...]:
    text = {m: n for m, n in raw.items() if not m.startswith("_")}
    counted = _bold(cells).groupby(cells["method"]).sum()
    found = {m: int(counted.get(m, 0)) for m in text}
    return ("cells in which each method ranks highest (bold by the rule of the caption)",
            "Sec. 4.1, Table 1", *(", ".join(f"{m} {n}" for m, n in d.items())
                                   for d in (text, found)), verdict(found == text))


def _rivals(cells: pd.DataFrame) -> list[tuple[str, ...]]:
    table = columns_by_method(cells[cells["method"] != "Base"])
    cosine = table[table["Cosine"] > table[list(MEMORIES)].max(axis=1)]
    single = table[table["Memory-R"] > table["Memory-R+"]]
    statement = "Memory-R+ outperforms other RL methods"

    def shown(part: pd.DataFrame, methods: tuple[str, ...]) -> str:
        return "; ".join(
            f"{' '.join(key)}: " + ", ".join(f"{m} {row[m]:.1f}" for m in methods)
            for key, row in part.iterrows()
        ) or "nowhere"  # fmt: skip

    return [
        (f"{statement}, in every column: Cosine", "Sec. 1 (4), Table 1", "outperforms",
         f"Cosine above both memories in {len(cosine)} of {len(table)} columns: "
         f"{shown(cosine, ('Cosine', *MEMORIES))}", verdict(cosine.empty)),
        (f"{statement}, in every column: Memory-R", "Sec. 1 (4), Table 1", "outperforms",
         f"Memory-R above Memory-R+ in {len(single)} of {len(table)} columns: "
         f"{shown(single, MEMORIES)}", verdict(single.empty)),
    ]


def _gains(cells: pd.DataFrame) -> list[tuple[str, ...]]:
    base = cells[cells["method"] == "Base"].set_index(["model", "benchmark"])["mean"]
    gain = cells["mean"] - [base[m, b] for m, b in zip(cells["model"], cells["benchmark"],
                                                       strict=True)]
    memory = cells["method"].isin(MEMORIES)
    usual = memory & (cells["benchmark"] != "AIME24")
    best = usual & (cells["metric"] == "best")
    low, high = gain[best].min(), gain[best].max()
    found = (f"best checkpoint, without AIME24: {low:.1f} to {high:.1f}; all cells: "
             f"{gain[memory].min():.1f} to {gain[memory].max():.1f}")
    out = [("gains of the memory variants over Base (verdict: best checkpoint, without AIME24)",
            "Sec. 4.1, Table 1", "2 to 14 points", found,
            verdict(round(low) == 2 and round(high) == 14))]
    below = cells[(cells["method"] == "R1") & (gain < 0)]
    out.append(("R1 occasionally underperforms Base", "Sec. 4.1, Table 1", "occasionally",
                f"in {len(below)} of {(cells['method'] == 'R1').sum()} cells",
                verdict(len(below) > 0)))
    return out


def _best_not_below_last(cells: pd.DataFrame) -> tuple[str, ...]:
    table = cells.pivot_table("mean", ["model", "method", "benchmark"], "metric", sort=False)
    lower = table[table["best"] < table["last"]]
    found = "; ".join(f"{' '.join(key)}: last {row['last']:.1f} > best {row['best']:.1f}"
                      for key, row in lower.iterrows()) or "nowhere below"
    return ("the best checkpoint is not below the last (if it is chosen per benchmark)", "Table 1",
            "best and last", found, verdict(lower.empty))


def _possible_cells(cells: pd.DataFrame, where: str) -> tuple[str, ...]:
    bad = []
    for row in cells.itertuples():
        if not np.isnan(row.std) and not possible(row.mean, PROBLEMS[row.benchmark], 3, row.std):
            lone = possible(row.mean, PROBLEMS[row.benchmark], 3)
            what = "std" if lone else "mean"
            bad.append(f"{row.model} {row.method} {row.benchmark} {row.metric} "
                       f"{row.mean} ± {row.std} ({what})")
    checked = int(cells["std"].notna().sum())
    return ("every mean ± std (ddof 1) can come from three runs over the benchmark's problems",
            where, f"{checked} cells", f"impossible: {len(bad)}" + (f": {'; '.join(bad)}" if bad
                                                                    else ""), verdict(not bad))


def _number_of_neighbours(cells: pd.DataFrame) -> list[tuple[str, ...]]:
    table = columns_by_method(cells)
    winners = table.idxmax(axis=1)
    one = int((winners == "K = 1").sum())
    bold = _bold(cells)[cells["method"] == "K = 20"]
    top = int((table["K = 20"] == table.max(axis=1)).sum())
    steps = np.sign(np.diff(table.to_numpy(), axis=1))
    rises, falls = int((steps > 0).sum()), int((steps < 0).sum())
    return [
        ("the highest accuracy is achieved with K > 1", "Sec. 4.2, Table 2", "all three data sets",
         f"K = 1 is highest in {one} of {len(table)} columns", verdict(one == 0)),
        ("K = 20 consistently ranks at the top", "Sec. 4.2, Table 2", "consistently",
         f"bold by the caption's rule in {int(bold.sum())} of {len(bold)} columns, the highest "
         f"mean in {top}", verdict(bool(bold.all()))),
        ("increasing K generally improves", "Sec. 4.2, Table 2", "generally",
         f"of {steps.size} steps to the next K, {rises} rise and {falls} fall",
         verdict(rises > falls)),
    ]


def _behaviour(data: dict[str, Any]) -> list[tuple[str, ...]]:
    checks, diversity = data["self_verification_of_100"], data["table6_diversity_x100"]
    table = [[checks[m], 100 - checks[m]] for m in ("Memory-R+", "Base")]
    p = float(stats.fisher_exact(table).pvalue)
    higher = all(diversity["Memory-R+"][k] > diversity["R1"][k] for k in diversity["R1"])
    pairs = ", ".join(f"{diversity['Memory-R+'][k]} against {diversity['R1'][k]}"
                      for k in diversity["R1"])
    margins = data["figure2_margins_of_memory_r_plus_K20"]
    return [
        ("Memory-R+ verifies itself more often than Base", "Sec. 4.2",
         f"{checks['Memory-R+']} of 100 against {checks['Base']}", f"Fisher's exact p = {p:.1g}",
         verdict(checks["Memory-R+"] > checks["Base"] and p < 0.05)),
        ("Memory-R+ significantly surpasses R1 in diversity", "Sec. 4.2, Table 6", pairs,
         "one chosen seed, no spread printed" if higher else "not higher",
         UNCHECKED if higher else INCONSISTENT),
        ("margins of Memory-R+ (K = 20) over all baselines", "Sec. 4.2, Fig. 2",
         ", ".join(f"{n} on {b}" for b, n in margins.items()),
         "the baselines' values are not printed", UNCHECKED),
        ("collapse does not occur with Memory-R+ in any run", "Sec. 4.1", "no run",
         "no curves of all runs are printed", UNCHECKED),
    ]
