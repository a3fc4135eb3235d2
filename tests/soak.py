"""500 steps of the tiny world with Memory-R+ and with MEDS: does anything grow that must not?

    python tests/soak.py [steps]        (make soak)

Per step: memory of the process, CPU seconds, open files, child processes. The learning rate is as
good as 0, so that all steps do the same work whatever would have been learnt. Ends with status 1
if something has grown between the first fifth after the warm-up and the last fifth.
"""

import json
import os
import shutil
import statistics
import sys
import time
from dataclasses import replace
from pathlib import Path

METHODS = {"Memory-R+": "memory_r", "MEDS": "meds"}
OUT = Path("build/soak")
WARM_UP = 0.2  # share of the steps
# allowed between the two fifths: what memories, caches and rows of metrics.jsonl may take
MORE_MEMORY = 0.05  # share
MORE_SECONDS = 0.15  # share; CPU time on a shared machine varies by about so much


def look() -> dict[str, float]:
    """This process now; ``rss`` in MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return {"rss": pages * os.sysconf("SC_PAGE_SIZE") / 1e6, "cpu": time.process_time(),
            "files": len(os.listdir("/proc/self/fd")), "children": len(children)}  # fmt: skip


def soak(method: str, steps: int, folder: Path) -> list[dict[str, float]]:
    """Train, and what :func:`look` saw after each step; ``cpu`` is the step's own."""
    import torch

    from paperlib.evaluation.collapse import CollapseWatch
    from paperlib.experiments.recipes import recipe
    from paperlib.rl.train import train

    torch.set_num_threads(1)
    config = replace(
        recipe(METHODS[method], method, "tiny", 0), max_steps=steps, save_steps=steps // 5,
        prompts_per_step=2, num_generations=4, max_completion_length=32, learning_rate=1e-9,
        max_generation_batches=2, max_empty_steps=steps,
    )  # fmt: skip
    seen, warn = [look()], CollapseWatch()

    def watch(rows: list[dict[str, float]]) -> list[str]:
        seen.append(look())
        return warn(rows)  # part of every run, and looks at all of its rows

    train(config, folder, device="cpu", progress=True, watch=watch)
    return [{**now, "cpu": now["cpu"] - before["cpu"]}
            for before, now in zip(seen, seen[1:], strict=False)]  # fmt: skip


def judge(rows: list[dict[str, float]]) -> tuple[dict[str, list[float]], list[str]]:
    """Medians of the first fifth after the warm-up and of the last, and what has grown."""
    fifth = max(1, round(len(rows) * WARM_UP))
    parts = rows[fifth : 2 * fifth], rows[-fifth:]
    found = {key: [statistics.median(row[key] for row in part) for part in parts]
             for key in rows[0]}  # fmt: skip
    allowed = {"rss": MORE_MEMORY, "cpu": MORE_SECONDS, "files": 0.0, "children": 0.0}
    grown = [key for key, (early, late) in found.items() if late > early * (1 + allowed[key])]
    return found, grown


def main(steps: int = 500) -> int:
    os.nice(10)  # minutes of work that nobody waits for
    status = 0
    for method, paper in METHODS.items():
        shutil.rmtree(OUT / paper, ignore_errors=True)
        rows = soak(method, steps, OUT / paper)
        (OUT / f"{paper}.json").write_text(json.dumps(rows))
        found, grown = judge(rows)
        status |= bool(grown)
        text = "; ".join(f"{key} {early:.4g} -> {late:.4g}" for key, (early, late) in found.items())
        verdict = f"GROWN: {', '.join(grown)}" if grown else "flat"
        print(f"{method}, {len(rows)} steps: {text}: {verdict}")
    return status


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
