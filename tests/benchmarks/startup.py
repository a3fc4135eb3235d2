"""Start-up times, and the whole tiny Table 1 of both papers; wall seconds of new processes."""

import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from measure import timed_row

from paperlib.environment import ROOT
from paperlib.experiments.recipes import recipe
from paperlib.experiments.store import Store

TABLE1 = "the whole tiny Table 1 of both papers"


def _wall(arguments: list[str]) -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def _table1(runs: Path) -> float:
    with tempfile.TemporaryDirectory() as scratch:
        return _wall(["-m", "paperlib", "reproduce", "table1", "-p", "RUNS", str(runs),
                      "-p", "FIGURES", scratch])  # fmt: skip


def start_up(repeats: int) -> list[dict[str, Any]]:
    works = {"`import paperlib`": (["-c", "import paperlib"], 0.3),
             "`python -m paperlib --help`": (["-m", "paperlib", "--help"], 1.0)}  # fmt: skip
    return [timed_row(work, statistics.median(_wall(arguments) for _ in range(repeats + 1)), limit)
            for work, (arguments, limit) in works.items()]  # fmt: skip


def table1_warm(runs: Path) -> list[dict[str, Any]]:
    """When all runs are there."""
    work = f"{TABLE1}, warm"
    if Store(runs).run(recipe("meds", "MEDS", "tiny", 2)).status() != "complete":
        return [{"work": work, "why": f"{runs} does not hold its runs: make reproduce-table1"}]
    return [timed_row(work, _table1(runs), 30.0)]


def table1_cold() -> list[dict[str, Any]]:
    """From nothing: all runs are trained. Half an hour and more."""
    store = ROOT / "build" / "benchmark-runs"
    shutil.rmtree(store, ignore_errors=True)
    found = timed_row(f"{TABLE1}, cold", _table1(store), 1200.0)
    shutil.rmtree(store)
    return [found]
