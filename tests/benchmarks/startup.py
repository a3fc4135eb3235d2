"""Start-up times, and the whole tiny Table 1 of both papers from an empty store."""

import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from measure import Row, Skipped

from paperlib.environment import ROOT
from paperlib.experiments.recipes import recipe
from paperlib.experiments.store import Store


def _wall(arguments: list[str]) -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def start_up(repeats: int) -> list[Row]:
    """Wall seconds of a new process; the goal is a time, so the peer is that time."""
    works = {"`import paperlib`": (["-c", "import paperlib"], 0.3),
             "`python -m paperlib --help`": (["-m", "paperlib", "--help"], 1.0)}
    rows = []
    for work, (arguments, limit) in works.items():
        found = statistics.median(_wall(arguments) for _ in range(repeats + 1))
        rows.append(Row(work, "the time allowed", found, limit, 1.0, "wall seconds"))
    return rows


def table1_warm(runs: Path) -> list[Row | Skipped]:
    """Both Table 1s when all runs are there."""
    run = Store(runs).run(recipe("meds", "MEDS", "tiny", 2))
    work = "the whole tiny Table 1 of both papers, warm"
    if run.status() != "complete":
        return [Skipped(work, f"{runs} does not hold its runs: make reproduce-table1")]
    with tempfile.TemporaryDirectory() as scratch:
        found = _reproduce(runs, Path(scratch))
    return [Row(work, "the time allowed", found, 30.0, 1.0, "wall seconds")]


def table1_cold() -> list[Row]:
    """Both Table 1s from nothing: all runs are trained. Half an hour and more."""
    store = ROOT / "build" / "benchmark-runs"
    shutil.rmtree(store, ignore_errors=True)
    with tempfile.TemporaryDirectory() as scratch:
        found = _reproduce(store, Path(scratch))
    shutil.rmtree(store)
    return [Row("the whole tiny Table 1 of both papers, cold", "the time allowed", found, 1200.0,
                1.0, "wall seconds")]


def _reproduce(runs: Path, scratch: Path) -> float:
    return _wall(["-m", "paperlib", "reproduce", "table1", "-p", "RUNS", str(runs),
                  "-p", "FIGURES", str(scratch)])
