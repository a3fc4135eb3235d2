"""What the kill tests share: one command that trains, evaluates and writes a table, in processes
of its own that can be killed, and everything that it must leave behind.

The processes are forked from one that has imported everything, so that a test pays for its run
alone. They are real processes and die by SIGKILL.
"""

import multiprocessing
import os
import re
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from paperlib.environment import ROOT
from paperlib.experiments.recipes import eval_settings, recipe
from paperlib.experiments.store import Run, Store
from paperlib.files import read_json, read_jsonl
from paperlib.report.tables import Cell, Column, Row, Table, write_table
from paperlib.rl.config import RunConfig

# the metrics that the README explains
_GLOSSARY = (ROOT / "paperlib/rl/README.md").read_text().partition("## Glossary")[2]
GLOSSARY = set(re.findall(r"^\| `(\S+)` \|", _GLOSSARY, re.M))
SETTINGS = eval_settings("meds", "smoke", "test")
# imported before the fork: what a run, an evaluation and the terms load when they are first used
PRELOAD = [
    "fault_world", "paperlib.rl.train", "paperlib.evaluation.harness",
    "paperlib.evaluation.collapse", "sentence_transformers",
    "transformers.models.llama.modeling_llama", "transformers.models.bert.modeling_bert",
    "hdbscan", "torch.utils.tensorboard",
]  # fmt: skip


def both_memories(engine: str = "ours", **changes: Any) -> RunConfig:
    """Four steps with all memories of both papers, which read from step 2 or 3 on; two updates a
    step, a checkpoint every other step."""
    meds, memory_r = recipe("meds", "MEDS", "smoke", 0), recipe("memory_r", "Memory-R+", "smoke", 0)
    small = {"prompts_per_step": 2, "num_generations": 4, "max_steps": 4, "save_steps": 2,
             "max_completion_length": 32, "dynamic_sampling": False, "prompt": "tags",
             "dataset": "tiny-smoke:0-4"}  # fmt: skip
    terms = (*memory_r.terms, meds.terms[-1])
    return replace(meds, engine=engine, terms=terms, **{**small, **changes})


def the_run(root: Path, engine: str = "ours") -> Run:
    return Store(root / "runs").run(both_memories(engine))


def command(root: Path, engine: str = "ours") -> None:
    """Train, evaluate the last checkpoint, write the table: what a user asks for again and again
    until it is there."""
    torch.set_num_threads(1)
    run = the_run(root, engine).ensure(device="cpu", progress=False)
    result = run.evaluation(run.checkpoints()[-1][0], SETTINGS, progress=False)
    values = [p["correct"] / p["n"] for p in result["problems"]] + run.metrics()["reward"].tolist()
    cells, columns = [Cell((value,)) for value in values], [Column(str(v)) for v in values]
    table = Table("Both memories", tuple(columns), (Row("run", tuple(cells)),))
    write_table(table, root / "figures", "table")


def start(function: Callable[..., None], *arguments: Any) -> Any:
    """A process that calls the function, its output in ``<first argument>/output.txt``."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOAD)
    process = context.Process(target=_quietly, args=(function, arguments))
    process.start()
    return process


def _quietly(function: Callable[..., None], arguments: tuple) -> None:
    with open(arguments[0] / "output.txt", "ab") as log:
        for number in (1, 2):
            os.dup2(log.fileno(), number)
        function(*arguments)
        sys.stdout.flush()


def kill(process: Any) -> None:
    """SIGKILL, now; it must not have ended by itself."""
    process.kill()
    process.join()
    assert process.exitcode == -signal.SIGKILL, f"it ended with {process.exitcode} before the kill"


def wait_for(process: Any, happened: Callable[[], bool], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not happened():
        assert process.is_alive(), f"it ended with {process.exitcode} before it could be killed"
        assert time.monotonic() < deadline, "what the test waits for never came"
        time.sleep(0.0005)


def finish(function: Callable[..., None], root: Path, *arguments: Any) -> None:
    """The same command once more, up to its end."""
    process = start(function, root, *arguments)
    process.join(300)
    assert process.exitcode == 0, (root / "output.txt").read_text()[-2000:]


def outcome(root: Path, engine: str = "ours") -> dict[str, Any]:
    """All that :func:`command` computed, times left out."""
    run = the_run(root, engine)
    (evaluation,) = run.folder.glob("evaluations/*.json")
    return {
        **outcome_of(run.folder),
        "evaluation": {k: v for k, v in read_json(evaluation).items() if "seconds" not in k},
        "tables": {p.name: p.read_text() for p in (root / "figures").glob("table.*")},
    }


def outcome_of(folder: Path) -> dict[str, Any]:
    """All that training computed, times left out; weights and memories byte by byte."""
    import pandas as pd

    metrics = [{k: v for k, v in row.items() if not k.startswith("seconds/")}
               for row in read_jsonl(folder / "metrics.jsonl")]  # fmt: skip
    files = sorted(folder.glob("rollouts/*.parquet"))
    weights = {p.parent.name: p.read_bytes()
               for p in folder.glob("checkpoints/[0-9]*/model.safetensors")}  # fmt: skip
    states = {p.parent.name: plain(torch.load(p, weights_only=True)["terms"])
              for p in folder.glob("checkpoints/[0-9]*/state.pt")}  # fmt: skip
    done = read_json(folder / "complete.json")
    return {
        "metrics": metrics, "rollouts": pd.concat(map(pd.read_parquet, files)).to_csv(),
        "weights": weights, "memories": states, "done": (done["step"], done["reason"]),
    }


def plain(value: Any) -> Any:
    """Tensors as lists, so that states can be compared."""
    if isinstance(value, torch.Tensor | np.ndarray):
        return value.tolist()
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return value
