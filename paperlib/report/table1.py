"""Both Table 1s from the run store, and what happened in their runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from paperlib.evaluation.settings import EvalSettings
from paperlib.experiments.recipes import METHODS, eval_settings, methods, models
from paperlib.experiments.rows import Runs, table1_runs
from paperlib.experiments.sizes import short_name
from paperlib.experiments.store import Run, Store
from paperlib.files import read_json
from paperlib.report.cells import Cell, Column, Row, Table
from paperlib.report.marking import bold_max, cohen_marks, mark_table
from paperlib.report.scores import (
    AVERAGE,
    CHECKPOINT_NOTE,
    CHECKPOINTS,
    LEVELS,
    checkpoint_score,
    columns_of,
    compare,
    last_result,
    level_name,
    level_note,
    levels_of,
    score,
    stored_evaluation,
)
from paperlib.report.tables import provenance_lines
from paperlib.rl.trl_settings import OVERSAMPLING

__all__ = [  # the scores too: whoever makes tables needs both
    "AVERAGE", "LEVELS", "checkpoint_score", "columns_of", "compare", "intrinsic_lines",
    "last_result", "level_name", "levels_of", "meds_table1", "memory_r_table1", "provenance",
    "run_summary", "score", "score_row", "stored_evaluation", "table1_runs",
]  # fmt: skip

INTRINSIC = ("exploit", "explore", "cluster_penalty")
# Methods with a memory, and the methods they add one memory to.
RIVALS = {"Memory-R": ("R1",), "Memory-R+": ("R1", "Memory-R"), "MEDS": ("DAPO",)}


def score_row(
    label: str, runs: Sequence[Run], columns: Sequence[tuple[int | str, str, int]],
    test: EvalSettings, validation: EvalSettings, group: str = "",
) -> Row:
    """A row of a table; ``columns`` are (level, checkpoint, k). What is not trained has its one
    checkpoint as "last" alone."""
    untrained = not any(run.config.max_steps for run in runs)
    return Row(
        label,
        tuple(
            None if untrained and which != "last" else Cell.from_seeds(
                checkpoint_score(run, which, test, validation, k, level) for run in runs
            )
            for level, which, k in columns
        ),
        group,
    )  # fmt: skip


def _blocks(
    paper: str, profile: str, preset: str, seeds: Sequence[int], store: Store,
    chosen: Sequence[str] | str | None, engine: str,
) -> dict[str, tuple[str, Runs]]:
    """Model -> what its blocks of rows are called, and its runs. The tiny world has one model,
    which is not named."""
    return {
        model: (
            "" if model == "tiny" else f"{short_name(model)}, ",
            table1_runs(paper, profile, preset, seeds, store, model, engine),
        )
        for model in models(paper, profile, chosen)
    }


def _what(profile: str, preset: str, engine: str) -> str:
    words = f"profile {profile}, preset {preset}"
    return words if engine == "ours" else f"{words}, engine {engine}"


def _footer(
    paper: str, blocks: dict[str, tuple[str, Runs]], engine: str = "ours"
) -> tuple[str, ...]:
    """What the memories did, model by model, which rows the engine refuses, and where all numbers
    come from."""
    lines = [f"{name}{x}" for name, runs in blocks.values() for x in intrinsic_lines(runs)]
    every = [r for _, runs in blocks.values() for of_method in runs.values() for r in of_method]
    refused = [m for m in METHODS[paper] if m not in methods(paper, engine)]
    if refused:
        lines.append(f"Not in this table: {', '.join(refused)}, which engine {engine} refuses.")
    return (*lines, *provenance(every))


def memory_r_table1(
    profile: str, preset: str, seeds: Sequence[int], store: Store,
    chosen: Sequence[str] | str | None = None, engine: str = "ours",
) -> Table:
    """Memory-R+ Table 1: accuracy at the last and the best checkpoint, mean and std over seeds.

    Two blocks of rows a model: sampled at temperature 1 (mean over n samples) and greedy.
    """
    blocks = _blocks("memory_r", profile, preset, seeds, store, chosen, engine)
    rows = []
    for model, (name, runs) in blocks.items():
        validation = eval_settings("memory_r", profile, "validation", model=model)
        for greedy in (False, True):
            test = eval_settings("memory_r", profile, "test", greedy=greedy, model=model)
            columns = [(x, which, 1) for x in columns_of(test.task) for which in CHECKPOINTS]
            group = f"{name}{'greedy' if greedy else 'temperature 1'}"
            rows += [score_row(m, rs, columns, test, validation, group) for m, rs in runs.items()]
    table = Table(
        title=f"Memory-R+ Table 1, {_what(profile, preset, engine)}: accuracy in percent",
        columns=tuple(Column(which, level_name(x, test.task)) for x, which, _ in columns),
        rows=tuple(rows),
        row_headers=("Model, decoding" if name else "Decoding", "Method"),
        notes=(
            CHECKPOINT_NOTE, level_note(test.task),
            "Bold: best, and all within Cohen's d < 0.5 of it; underline: second, where one cell "
            "is bold. Mean and standard deviation (ddof 1) over seeds.",
        ),
        footer=_footer("memory_r", blocks, engine),
    )
    return mark_table(table, cohen_marks)


def meds_table1(
    profile: str, preset: str, seeds: Sequence[int], store: Store,
    chosen: Sequence[str] | str | None = None, engine: str = "ours",
) -> Table:
    """MEDS Table 1: pass@1 and pass@n per level and on average, mean and std over seeds."""
    blocks = _blocks("meds", profile, preset, seeds, store, chosen, engine)
    names = {"last": "last", "best": "best", "max": "max (optimistic)"}
    rows = []
    for model, (name, runs) in blocks.items():
        validation, test = (
            eval_settings("meds", profile, split, model=model) for split in ("validation", "test")
        )
        columns = [(level, k) for level in columns_of(test.task) for k in (1, test.samples)]
        for which in CHECKPOINTS:
            cells = [(level, which, k) for level, k in columns]
            group = f"{name}{names[which]}"
            rows += [score_row(m, rs, cells, test, validation, group) for m, rs in runs.items()]
    table = Table(
        title=f"MEDS Table 1, {_what(profile, preset, engine)}: pass@k in percent",
        columns=tuple(Column(f"pass@{k}", level_name(level, test.task)) for level, k in columns),
        rows=tuple(rows),
        row_headers=("Model, checkpoint" if name else "Checkpoint", "Method"),
        notes=(
            CHECKPOINT_NOTE, level_note(test.task),
            f"pass@k: unbiased estimate from n = {test.samples} samples per problem at temperature "
            "1, averaged over problems. Bold: best mean; underline: second. Mean and standard "
            "deviation (ddof 1) over seeds.",
        ),
        footer=_footer("meds", blocks, engine),
    )
    return mark_table(table, bold_max)


def provenance(runs: Sequence[Run]) -> tuple[str, ...]:
    """Footer lines for the complete runs among ``runs``."""
    complete = [run for run in runs if run.status() == "complete"]
    records = [read_json(run.folder / "environment.json") for run in complete]
    machines = {
        f"{r['machine']['cpu']}, {r['machine']['cores']} cores, device {r['machine']['device']}"
        for r in records
    }
    return (
        *provenance_lines(
            [r["commit"] for r in records if r["commit"]],
            "; ".join(sorted(machines)),
            [run.config.hash for run in complete],
            any(r["dirty"] for r in records),
        ),
        *_engine_lines(complete),
    )


def _engine_lines(runs: Sequence[Run]) -> tuple[str, ...]:
    """Footer: which of the runs TRL trained, and what it does approximately."""
    of_trl = [run for run in runs if run.config.engine == "trl"]
    drawn_once = sorted({r.config.method for r in of_trl if r.config.dynamic_sampling})
    lines = [f"Engine: TRL in {len(of_trl)} of {len(runs)} runs."] if of_trl else []
    if drawn_once:
        lines.append(
            f"Approximation: in {', '.join(drawn_once)} dynamic sampling is one draw of "
            f"{OVERSAMPLING} times the groups; where fewer have spread than a step needs, the step "
            "learns from fewer."
        )
    return tuple(lines)


def intrinsic_lines(runs: dict[str, list[Run]]) -> tuple[str, ...]:
    """Footer: did the memories act, and did they change what was learned?

    For each intrinsic term, the share of steps in which it is not 0 for some rollout, the lowest
    over seeds; for each method with a memory, whether its final weights differ from those of the
    methods without it, for every seed.
    """
    lines = []
    for method, rivals in RIVALS.items():
        done = [r for r in runs.get(method, []) if r.status() == "complete"]
        if not done:
            continue
        for term in done[0].config.terms:
            if term.name in INTRINSIC:
                acted = [(r.metrics()[f"reward_nonzero/{term.name}"] > 0).mean() for r in done]
                lines.append(
                    f"{method}: {term.name} is not 0 for some rollouts in at least "
                    f"{100 * min(acted):.0f} % of the steps of every seed."
                )
        pairs = [
            (run, other)
            for rival in rivals
            for run, other in zip(runs[method], runs[rival], strict=True)
            if run.status() == other.status() == "complete"
        ]
        differ = sum(_final_weights(a) != _final_weights(b) for a, b in pairs)
        lines.append(
            f"{method}: final weights differ from {' and '.join(rivals)} in {differ} of "
            f"{len(pairs)} pairs of equal seed."
        )
    return tuple(lines)


def _final_weights(run: Run) -> bytes:
    return (run.checkpoints()[-1][1] / "model.safetensors").read_bytes()


def run_summary(runs: dict[str, list[Run]]) -> Table:
    """What happened in training, per method: did clipping, resampling and every term act?

    Means over steps, then mean and std over seeds; in percent unless the column says otherwise.
    """
    trained = {m: [r for r in rs if r.config.max_steps] for m, rs in runs.items() if m != "Base"}
    frames = {m: [r.metrics() for r in rs if r.status() == "complete"] for m, rs in trained.items()}
    terms = sorted({
        c for fs in frames.values() for f in fs for c in f if c.startswith("reward_nonzero/")
    })
    plain = {
        "clip low": "clip_low", "clip high": "clip_high", "truncated": "truncated",
        "no spread": "groups_without_spread", **{f"{t.split('/')[1]} ≠ 0": t for t in terms},
    }
    columns = ["steps", "epochs", "updates", "groups dropped", *plain]

    def numbers(frame: Any) -> list[float | None]:
        dropped = 100 * frame["groups_dropped"].sum() / frame["groups_drawn"].sum()
        means = [100 * frame[c].mean() if c in frame else None for c in plain.values()]
        last = frame.iloc[-1]
        return [float(last["step"]), float(last["epoch"]), float(frame["updates"].sum()),
                float(dropped), *means]

    rows = []
    for method, of_method in frames.items():
        values = [numbers(frame) for frame in of_method]
        expected = len(trained[method])
        cells: list[Cell | None] = []
        for column in range(len(columns)):
            seen = [v[column] for v in values]
            absent = bool(seen) and all(value is None for value in seen)  # not a term of this one
            missing = [None] * (expected - len(seen))
            cells.append(None if absent else Cell.from_seeds([*seen, *missing]))
        rows.append(Row(method, tuple(cells)))
    return Table(
        title="What happened in the runs of Table 1",
        columns=tuple(Column(name) for name in columns),
        rows=tuple(rows),
        decimals=2,
        notes=(
            "Means over steps in percent (steps, epochs and updates are counts). clip: share of "
            "tokens outside the clip range in the direction the advantage pushes; groups dropped: "
            "by dynamic sampling, of those drawn; no spread: kept groups whose rewards are all "
            "equal; ≠ 0: share of completions for which a reward term is not zero.",
        ),
        footer=provenance([r for rs in trained.values() for r in rs]),
    )
