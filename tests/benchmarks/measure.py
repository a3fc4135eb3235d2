"""How things are measured here: alternating runs, medians, ratios; and the table of the results.

CPU time of this process, one torch thread: another program on the machine slows both sides alike.
"""

import gc
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from paperlib.environment import environment_record
from paperlib.files import read_json, write_json_atomic, write_text_atomic

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent))  # what the tests share


@dataclass
class Row:
    """One line of the table. ``ours`` and ``peer`` in seconds, or in ``unit``; lower is better."""

    work: str
    peer_name: str
    ours: float
    peer: float
    goal: float  # ours / peer, at most
    details: str = ""
    unit: str = "s"
    ratio: float | None = None  # None: ours / peer

    def __post_init__(self) -> None:
        if self.ratio is None:
            self.ratio = self.ours / self.peer


@dataclass
class Skipped:
    """A line that could not be measured, with the reason."""

    work: str
    why: str


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


def paired_row(
    work: str, peer_name: str, times: tuple[Sequence[float], Sequence[float]], goal: float,
    details: str = "",
) -> Row:
    """Medians of both sides, and the median of the ratios of the pairs."""
    ratios = [a / b for a, b in zip(*times, strict=True)]
    spread = f"ratios {min(ratios):.2f} to {max(ratios):.2f} in {len(ratios)} pairs"
    return Row(work, peer_name, *map(statistics.median, times), goal,
               "; ".join(filter(None, (details, spread))), ratio=statistics.median(ratios))


def exponent(sizes: Sequence[float], seconds: Sequence[float]) -> float:
    """Slope of log seconds over log size by least squares."""
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


def save(name: str, found: list[Row | Skipped] | list[dict[str, Any]]) -> None:
    """Keep what a benchmark found in results.json, and write RESULTS.md from all that is there."""
    path = HERE / "results.json"
    results = read_json(path) if path.exists() else {}
    record = environment_record()
    results[name] = {
        "rows": [item if isinstance(item, dict) else asdict(item) for item in found],
        "commit": (record["commit"] or "?")[:7] + "+" * bool(record["dirty"]),
        "machine": f"{record['machine']['cpu']}, {record['machine']['cores']} cores",
        "versions": {k: record["versions"][k] for k in ("torch", "transformers", "trl")},
        "date": record["started"][:10],
    }
    write_json_atomic(path, results)
    write_text_atomic(HERE / "RESULTS.md", render(results))


def render(results: dict[str, Any]) -> str:
    """RESULTS.md: the table, how cost grows, and what measured it."""
    lines = [
        "# Benchmarks", "",
        "Written by `make bench`; seconds are CPU seconds of one thread, medians of alternating "
        "runs, unless the line says otherwise. Ratio: ours over peer, the median over pairs.", "",
        "| work | ours | peer | | ratio | goal | |", "|---|---|---|---|---|---|---|",
    ]
    notes, skipped, growth = [], [], []
    for result in results.values():
        for row in result["rows"]:
            if "exponent" in row:
                growth.append(row)
            elif "why" in row:
                skipped.append(f"- {row['work']}: not measured, {row['why']}")
            else:
                met = "met" if row["ratio"] <= row["goal"] else "**missed**"
                lines.append(
                    f"| {row['work']} | {_number(row['ours'])} {row['unit']} | "
                    f"{_number(row['peer'])} {row['unit']} | {row['peer_name']} | "
                    f"{row['ratio']:.3g} | {row['goal']:.3g} | {met} |"
                )
                if row["details"]:
                    notes.append(f"- {row['work']}: {row['details']}")
    lines += ["", *notes, *skipped]
    if growth:
        lines += ["", "## How cost grows", "",
                  "| against | from | to | seconds | exponent | the work's own |",
                  "|---|---|---|---|---|---|"]
        for row in growth:
            lines.append(
                f"| {row['against']} | {row['sizes'][0]:,} | {row['sizes'][-1]:,} | "
                f"{_number(row['seconds'][0])} to {_number(row['seconds'][-1])} | "
                f"{row['exponent']:.2f} | {row['work']} |"
            )
    lines += ["", "## Measured by", "", "| benchmark | commit | date | machine | versions |",
              "|---|---|---|---|---|"]
    for name, result in results.items():
        versions = ", ".join(f"{k} {v}" for k, v in result["versions"].items())
        lines.append(f"| {name} | {result['commit']} | {result['date']} | {result['machine']} | "
                     f"{versions} |")
    return "\n".join(lines) + "\n\n`+`: with changes that were not committed.\n"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
