"""What an artefact needs before it is started: its runs, their cost, and what lacks here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from paperlib.errors import UserError
from paperlib.experiments import machine
from paperlib.experiments.benchmarks import task_data
from paperlib.experiments.costs import (
    CARD,
    CARD_BYTES,
    CARD_FLOPS,
    CPU_TOKENS,
    SAMPLING,
    TRAINING,
    Cost,
    memory_bytes,
    run_cost,
)
from paperlib.experiments.recipes import LAUNCH, MAIN_MODEL, METHODS
from paperlib.experiments.rows import TABLES, Need, needs
from paperlib.experiments.sizes import short_name
from paperlib.experiments.store import Store
from paperlib.methods.memory_r import Exploit, Explore
from paperlib.rl.config import RunConfig
from paperlib.rl.trl_settings import LAUNCH_DIR
from paperlib.tasks.data import missing, problem_count

CHECKED = ("laptop", "paper")  # profiles whose models and data are not shipped

# Artefacts beside the tables: whose runs they read, and what they train themselves.
_R, _MEDS = "table1-memory-r", "table1-meds"
SHARES: dict[str, tuple[tuple[str, ...], str]] = {
    "fig2-memory-r": (("table2-memory-r",), "R1 and Cosine on the same data"),
    "fig5-memory-r": ((_R, "table2-memory-r"), "R1 and Cosine on little data"),
    "collapse-memory-r": ((_R,), "R1 and Memory-R+ at other learning rates"),
    **{f"{name}-memory-r": ((_R,), "")
       for name in ("fig3", "fig4", "fig6", "table6", "tables7to9")},
    **{f"{name}-meds": ((_MEDS,), "")
       for name in ("fig1", "fig3", "fig4", "fig6-7", "annotation", "cost", "theorem")},
    "fig5-meds": (("table2-meds",), "DAPO with its layer logits recorded"),
    "fidelity-beyond": ((_R, _MEDS), "each method with one divergence of its released code"),
    "head-to-head-beyond": ((_R,), "MEDS's methods on the same model and prompt"),
    "shaping-scale-beyond": ((_R,), "both methods with other scaling"),
    "bring-your-own-beyond": ((_MEDS,), "a reward of the user's"),
}  # fmt: skip
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

    ``chosen`` models (None: the profile's own) and ``engine`` are of the Table 1s.
    """
    names = list(names)
    lines = [f"Plan of {', '.join(names)}: profile {profile}, preset {preset}, "
             f"seeds {', '.join(map(str, seeds))}, runs in {store.root}"]  # fmt: skip
    wanted: list[Need] = []
    for name in names:
        if name in TABLES:
            wanted += needs(name, profile, preset, seeds, store, chosen, engine)
            continue
        tables, own = SHARES.get(name, ((), ""))
        reads = f"runs of {', '.join(tables)}, one model" if tables else "no runs"
        lines.append(f"{name}: {reads}{f'; its own, not counted: {own}' if own else ''}")
        for table in tables:
            paper = table.removeprefix("table1-").replace("-", "_")
            main = [MAIN_MODEL[paper]] if paper in MAIN_MODEL and profile == "paper" else None
            wanted += needs(table, profile, preset, seeds, store, main)
    table, total = _table(wanted)
    lines += ["", *table]
    if profile == "laptop" and machine.gpu() is None:
        hours = (total.sampled + total.evaluated) / CPU_TOKENS / 3600
        lines.append(f"Without a GPU: up to {hours:,.0f} hours of sampling on two cores "
                     f"({CPU_TOKENS} tokens a second), training on top.")  # fmt: skip
    configs = [run.config for need in wanted for runs in need.runs.values() for run in runs]
    lacks = _missing(wanted, configs, profile, total.disk, store.root)
    lines += ["", *_notes(wanted, configs, preset), ""]
    lines += [f"Missing here ({len(lacks)}):", *(f"- {line}" for line in lacks)] if lacks else [
        "Nothing is missing here."]  # fmt: skip
    return Plan("\n".join(lines), lacks)


def _table(wanted: Iterable[Need]) -> tuple[list[str], Cost]:
    """A line for each row of a table and model, and their sum; a run counts once."""
    lines = [ROW.format("model", "row", "runs", "done", "sample", "train", "evaluate", "GPU h",
                        "disk")]  # fmt: skip

    def line(model: str, row: str, costs: list[Cost]) -> str:
        cost = sum(costs, Cost())
        tokens = (f"{n / 1e6:,.{int(n < 1e8)}f}M"
                  for n in (cost.sampled, cost.trained, cost.evaluated))  # fmt: skip
        return ROW.format(model[:24], row, len(costs), costs.count(Cost()), *tokens,
                          f"{cost.seconds / 3600:,.1f}", f"{cost.disk / 1e9:,.0f}GB")  # fmt: skip

    all_costs, seen = [], set()
    for need in wanted:
        for row, runs in need.runs.items():
            fresh = [run for run in runs if run.folder not in seen]
            seen |= {run.folder for run in fresh}
            costs = [run_cost(run, need.evaluations, need.checkpoints) for run in fresh]
            all_costs += costs
            if fresh:
                lines.append(line(short_name(need.model), row, costs))
    return [*lines, line("total", "", all_costs)], sum(all_costs, Cost())


def _notes(wanted: list[Need], configs: list[RunConfig], preset: str) -> Iterable[str]:
    yield (
        f"Presets: the published numbers came from the authors' code, preset released; this is "
        f"preset {preset}, and --preset {'released' if preset == 'paper' else 'paper'} plans the "
        "other."
    )
    trained = sorted({c.dataset for c in configs if c.max_steps})
    tests = sorted({d for n in wanted for e in n.evaluations for d in task_data(e.task)})
    for what, sets in (("Training data", trained), ("Evaluated on", tests)):
        if sets:
            yield f"{what}: {', '.join(f'{name} ({problem_count(name):,})' for name in sets)}"
    yield (
        "Tokens are upper bounds: every completion at its full length. GPU hours: 2 N a token in "
        f"a forward pass, 6 N with gradient, on one {CARD} ({CARD_FLOPS / 1e12:.0f} TFLOP/s) at "
        f"{TRAINING:.0%} of it in training and {SAMPLING:.0%} while sampling (assumed)."
    )
    if bounds := {c.max_generation_batches for c in configs
                  if c.dynamic_sampling and c.max_steps and c.engine == "ours"}:  # fmt: skip
        yield (f"Dynamic sampling may draw up to {max(bounds)} generation batches a step: "
               f"up to {max(bounds)} times the sampled tokens of DAPO and MEDS.")  # fmt: skip
    for paper in dict.fromkeys(c.paper for c in configs if c.profile == "paper" and c.max_steps):
        file, flags, gpus = LAUNCH[paper]
        last = METHODS[paper][-1]
        yield (
            f"Several GPUs, or vLLM: engine trl, a run at a time; {last} on {gpus} GPU(s): "
            f"accelerate launch --config_file {LAUNCH_DIR / file} -m paperlib train --paper "
            f"{paper} --method {last} --profile paper --engine trl{flags}"
        )


def _missing(
    wanted: list[Need], configs: list[RunConfig], profile: str, disk: int, root: Path
) -> list[str]:
    encoders = [t.settings.encoder for c in configs for t in c.terms
                if isinstance(t, Exploit | Explore)]  # fmt: skip
    data = [c.dataset for c in configs if c.max_steps]
    data += [d for need in wanted for e in need.evaluations for d in task_data(e.task)]
    try:
        lacks = [why for name in dict.fromkeys(data) for why in missing(name)]
    except UserError as error:  # PAPERLIB_DATA_DIR is no folder
        lacks = [str(error)]
    names = dict.fromkeys([*(config.model for config in configs), *encoders])
    lacks += filter(None, map(machine.lacking_model, names))
    if (free := machine.free_bytes(root)) < disk:
        lacks.append(f"disk: {disk / 1e9:,.0f} GB needed, {free / 1e9:,.0f} GB free in {root}")
    if profile == "paper":
        lacks += _missing_gpu(wanted)
    return list(dict.fromkeys(lacks))


def _missing_gpu(wanted: Iterable[Need]) -> Iterable[str]:
    """No GPU, or one whose memory is too small; without one, the recipes' 80 GB are held against
    the need."""
    here = machine.gpu()
    if here is None or not here[1]:
        yield f"GPU: {'none' if here is None else 'no bf16'}; the profile needs one with bf16"
    room = here[0] if here else CARD_BYTES
    for need in wanted:
        configs = [run.config for runs in need.runs.values() for run in runs]
        weights, cache = max((memory_bytes(c, need.evaluations, room) for c in configs), key=sum)
        trained = [config for config in configs if config.max_steps]
        if any(config.engine == "trl" for config in trained):  # vLLM keeps to its own share
            weights, cache = weights // LAUNCH[trained[0].paper][2], 0
        if weights + cache > room:
            yield (
                f"GPU memory: {short_name(need.model)} needs {weights / 1e9:,.0f} GB for weights, "
                f"gradients, Adam and reference and {cache / 1e9:,.1f} GB for the rows sampled at "
                f"once; one card {'here' if here else 'of the recipe'} has {room / 1e9:,.0f} GB, "
                "and our loop uses one; engine trl shares them out among several"
            )
