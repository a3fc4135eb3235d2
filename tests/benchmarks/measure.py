"""How things are measured here: alternating runs, medians, ratios; and the table of the results.

CPU time of this process, one torch thread: another program on the machine slows both sides alike.
"""

import gc
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from paperlib.environment import environment_record
from paperlib.files import read_json, write_json_atomic, write_text_atomic

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent))  # what the tests share

HEAD = """\
# Benchmarks

Written by `make bench`; seconds are CPU seconds of one thread, medians of alternating runs, \
unless the line says otherwise. Ratio: ours over peer, the median over pairs.
"""


def row(
    work: str, peer_name: str, ours: float, peer: float, goal: float, details: str = "",
    unit: str = "s", ratio: float | None = None,
) -> dict[str, Any]:
    """A line of the table; ``goal`` is what ours / peer may be at most."""
    return {"work": work, "peer_name": peer_name, "ours": ours, "peer": peer, "goal": goal,
            "details": details, "unit": unit, "ratio": ours / peer if ratio is None else ratio}


def timed_row(work: str, seconds: float, allowed: float) -> dict[str, Any]:
    """A line whose goal is a time."""
    return row(work, "the time allowed", seconds, allowed, 1.0, "wall seconds")


def paired_row(
    work: str, peer_name: str, times: tuple[Sequence[float], Sequence[float]], goal: float,
    details: str = "",
) -> dict[str, Any]:
    """Medians of both sides, and the median of the ratios of the pairs."""
    ratios = [a / b for a, b in zip(*times, strict=True)]
    spread = f"ratios {min(ratios):.2f} to {max(ratios):.2f} in {len(ratios)} pairs"
    ours, peer = map(statistics.median, times)
    return row(work, peer_name, ours, peer, goal, "; ".join(filter(None, (details, spread))),
               ratio=statistics.median(ratios))


def alternate(
    ours: Callable[[], Any], peer: Callable[[], Any], repeats: int, warm_up: bool = True
) -> tuple[list[float], list[float]]:
    """CPU seconds of both, called in turn; who comes first alternates."""
    times: tuple[list[float], list[float]] = ([], [])
    for repeat in range(-warm_up, repeats):
        for side in (0, 1) if repeat % 2 else (1, 0):
            seconds = timed((ours, peer)[side])
            if repeat >= 0:
                times[side].append(seconds)
    return times


def timed(function: Callable[[], Any]) -> float:
    """CPU seconds of one call, the garbage of others collected before."""
    gc.collect()
    began = time.process_time()
    function()
    return time.process_time() - began


def exponent(sizes: Sequence[float], seconds: Sequence[float]) -> float:
    """Slope of log seconds over log size by least squares."""
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


def save(name: str, rows: list[dict[str, Any]]) -> None:
    """Keep what a benchmark found in results.json, and write RESULTS.md from all that is there."""
    path = HERE / "results.json"
    results = read_json(path) if path.exists() else {}
    record = environment_record()
    results[name] = {
        "rows": rows,
        "commit": (record["commit"] or "?")[:7] + "+" * bool(record["dirty"]),
        "machine": f"{record['machine']['cpu']}, {record['machine']['cores']} cores",
        "versions": {k: record["versions"][k] for k in ("torch", "transformers", "trl")},
        "date": record["started"][:10],
    }
    write_json_atomic(path, results)
    write_text_atomic(HERE / "RESULTS.md", render(results))


def render(results: dict[str, Any]) -> str:
    """RESULTS.md: the table, how cost grows, and what measured it."""
    rows = [row for result in results.values() for row in result["rows"]]
    return "\n".join([
        HEAD,
        *_table("work|ours|peer||ratio|goal|", (
            [row["work"], f"{_number(row['ours'])} {row['unit']}",
             f"{_number(row['peer'])} {row['unit']}", row["peer_name"], f"{row['ratio']:.3g}",
             f"{row['goal']:.3g}", "met" if row["ratio"] <= row["goal"] else "**missed**"]
            for row in rows if "ratio" in row)),
        "",
        *(f"- {row['work']}: {row['details']}" for row in rows if row.get("details")),
        *(f"- {row['work']}: not measured, {row['why']}" for row in rows if "why" in row),
        "\n## How cost grows\n",
        *_table("against|from|to|seconds|exponent|the work's own", (
            [row["against"], f"{row['sizes'][0]:,}", f"{row['sizes'][-1]:,}",
             f"{_number(row['seconds'][0])} to {_number(row['seconds'][-1])}",
             f"{row['exponent']:.2f}", row["work"]]
            for row in rows if "exponent" in row)),
        "\n## Measured by\n",
        *_table("benchmark|commit|date|machine|versions", (
            [name, result["commit"], result["date"], result["machine"],
             ", ".join(f"{k} {v}" for k, v in result["versions"].items())]
            for name, result in results.items())),
        "\n`+`: with changes that were not committed.\n",
    ])  # fmt: skip


def _table(head: str, rows: Iterable[list[str]]) -> list[str]:
    names = head.split("|")
    return [f"| {' | '.join(cells)} |" for cells in (names, ["---"] * len(names), *rows)]


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
