"""Both engines on a GPU: losses and gradients of a fixed batch in fp32 and bf16, then smoke runs.

    make gpu-parity

Writes parity.json, and shows it. Not run on a GPU yet; with ``--device cpu`` it shows what it does,
anywhere.
"""

import argparse
import json
import sys
import time
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from paperlib.environment import environment_record
from paperlib.experiments.recipes import recipe
from paperlib.files import read_jsonl, write_json_atomic
from paperlib.rl import train as ours
from paperlib.rl import trl_engine
from tests.trl_world import loss_parity


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--out", type=Path, default=Path("build/gpu-parity"))
    parser.add_argument("--steps", type=int, default=8, help="of each smoke run")
    options = parser.parse_args()
    result: dict = {"environment": environment_record(options.device)}
    result |= {"fixed batch": {}, "runs": {}}
    for precision in ("fp32", "bf16"):
        for loss_type in ("grpo", "dapo", "dr_grpo"):
            for beta in (0.0, 0.04):
                pairs = loss_parity(loss_type, beta, options.out, options.device, precision)
                result["fixed batch"][f"{precision} {loss_type} beta {beta}"] = {
                    "loss": max(loss for loss, _ in pairs),
                    "gradient": max(gradient for _, gradient in pairs),
                }
    for method in ("GRPO", "MEDS"):
        for engine in ("ours", "trl"):
            base = recipe("meds", method, "smoke", 0, engine=engine)
            config = replace(base, max_steps=options.steps, save_steps=options.steps)
            folder = options.out / f"{method}-{engine}-{time.time_ns()}"
            began = time.perf_counter()
            module = ours if engine == "ours" else trl_engine
            module.train(config, folder, device=options.device, progress=False)
            rows = read_jsonl(folder / "metrics.jsonl")
            result["runs"][f"{method} {engine}"] = {
                "seconds": round(time.perf_counter() - began, 1),
                "accuracy": [round(row["accuracy_drawn"], 3) for row in rows],
            }
    write_json_atomic(options.out / "parity.json", result)
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
