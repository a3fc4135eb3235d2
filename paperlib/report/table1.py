"""Both Table 1s from the run store: which checkpoint counts, which number goes into which cell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from paperlib.evaluation.passk import mean_pass_at_k
from paperlib.evaluation.settings import EvalSettings
from paperlib.experiments.recipes import METHODS, eval_settings, recipe
from paperlib.experiments.store import Run, Store
from paperlib.files import read_json
from paperlib.report.cells import Cell, Column, Row, Table
from paperlib.report.marking import bold_max, cohen_marks, mark_table
from paperlib.report.tables import provenance_lines

AVERAGE = "Average"
INTRINSIC = ("exploit", "explore", "cluster_penalty")
# Methods with a memory, and the methods they add one memory to.
RIVALS = {"Memory-R": ("R1",), "Memory-R+": ("R1", "Memory-R"), "MEDS": ("DAPO",)}
LEVELS = (1, 2, 3, 4)
CHECKPOINTS = ("last", "best", "max")
CHECKPOINT_NOTE = (
    "last: final checkpoint; best: the one checkpoint of a run with the highest pass@1 on the "
    "validation split; max: highest test value over a run's checkpoints, optimistic by "
    "construction."
)
LEVEL_NOTE = (
    "Levels 1 to 4 are those of the tiny world (number of operations of a word problem): not the "
    "papers' benchmarks, and not comparable with them in value."
)


def table1_runs(
    paper: str, profile: str, preset: str, seeds: Sequence[int], store: Store
) -> dict[str, list[Run]]:
    """The runs of each row, one per seed (Base: a single one), whether they exist yet or not."""
    return {
        method: [
            store.run(recipe(paper, method, profile, seed, preset))
            for seed in (seeds if method != "Base" else (0,))
        ]
        for method in METHODS[paper]
    }


def stored_evaluation(run: Run, step: int, settings: EvalSettings) -> dict[str, Any] | None:
    """A stored evaluation, None if it was not computed. Tables never compute one."""
    path = run.evaluation_path(step, settings)
    return read_json(path) if path.exists() else None


def last_result(run: Run, settings: EvalSettings) -> dict[str, Any] | None:
    """The evaluation of the last checkpoint, None if the run or the evaluation is missing."""
    if run.status() != "complete":
        return None
    return stored_evaluation(run, run.checkpoints()[-1][0], settings)


def score(result: dict[str, Any], k: int, level: int | str = AVERAGE) -> float:
    """pass@k in percent over the problems of a level; the average weighs the levels equally."""
    levels = LEVELS if level == AVERAGE else (level,)
    means = [
        mean_pass_at_k([(p["n"], p["correct"]) for p in result["problems"] if p["level"] == one], k)
        for one in levels
    ]
    return 100 * sum(means) / len(means)


def best_step(run: Run, validation: EvalSettings) -> int | None:
    """The checkpoint with the highest validation pass@1, the earliest of several; None if some
    checkpoint has no validation result yet."""
    scores = {}
    for step, _ in run.checkpoints():
        result = stored_evaluation(run, step, validation)
        if result is None:
            return None
        scores[step] = score(result, 1)
    return max(scores, key=lambda step: (scores[step], -step)) if scores else None


def checkpoint_score(
    run: Run, which: str, test: EvalSettings, validation: EvalSettings, k: int, level: int | str
) -> float | None:
    """One run's number for a cell, or None if it is missing.

    Args:
        which: ``last``, ``best`` or ``max``, see :data:`CHECKPOINT_NOTE`.
    """
    if run.status() != "complete":
        return None
    steps: list[int | None] = [step for step, _ in run.checkpoints()]
    if which == "last":
        steps = steps[-1:]
    elif which == "best":
        steps = [best_step(run, validation)]
    results = [None if s is None else stored_evaluation(run, s, test) for s in steps]
    if not results or any(result is None for result in results):
        return None
    return max(score(result, k, level) for result in results if result is not None)


def memory_r_table1(
    profile: str, preset: str, seeds: Sequence[int], store: Store
) -> Table:
    """Memory-R+ Table 1: accuracy at the last and the best checkpoint, mean and std over seeds.

    Two blocks of rows: sampled at temperature 1 (mean over n samples) and greedy.
    """
    runs = table1_runs("memory_r", profile, preset, seeds, store)
    validation = eval_settings("memory_r", profile, "validation")
    columns = [(level, which) for level in (*LEVELS, AVERAGE) for which in CHECKPOINTS]
    rows = []
    for greedy in (False, True):
        test = eval_settings("memory_r", profile, "test", greedy=greedy)
        for method, of_method in runs.items():
            cells = tuple(
                None if method == "Base" and which != "last" else Cell.from_seeds(
                    checkpoint_score(run, which, test, validation, 1, level) for run in of_method
                )
                for level, which in columns
            )
            rows.append(Row(method, cells, "greedy" if greedy else "temperature 1"))
    table = Table(
        title=f"Memory-R+ Table 1, profile {profile}, preset {preset}: accuracy in percent",
        columns=tuple(Column(which, level_name(level)) for level, which in columns),
        rows=tuple(rows),
        row_headers=("Decoding", "Method"),
        notes=(
            CHECKPOINT_NOTE, LEVEL_NOTE,
            "Bold: best, and all within Cohen's d < 0.5 of it; underline: second, where one cell "
            "is bold. Mean and standard deviation (ddof 1) over seeds.",
        ),
        footer=(
            *intrinsic_lines(runs),
            *provenance([run for of_method in runs.values() for run in of_method]),
        ),
    )
    return mark_table(table, cohen_marks)


def meds_table1(profile: str, preset: str, seeds: Sequence[int], store: Store) -> Table:
    """MEDS Table 1: pass@1 and pass@n per level and on average, mean and std over seeds."""
    runs = table1_runs("meds", profile, preset, seeds, store)
    validation = eval_settings("meds", profile, "validation")
    test = eval_settings("meds", profile, "test")
    columns = [(level, k) for level in (*LEVELS, AVERAGE) for k in (1, test.samples)]
    names = {"last": "last", "best": "best", "max": "max (optimistic)"}
    rows = [
        Row(
            method,
            tuple(
                None if method == "Base" and which != "last" else Cell.from_seeds(
                    checkpoint_score(run, which, test, validation, k, level) for run in of_method
                )
                for level, k in columns
            ),
            names[which],
        )
        for which in CHECKPOINTS
        for method, of_method in runs.items()
    ]
    table = Table(
        title=f"MEDS Table 1, profile {profile}, preset {preset}: pass@k in percent",
        columns=tuple(Column(f"pass@{k}", level_name(level)) for level, k in columns),
        rows=tuple(rows),
        row_headers=("Checkpoint", "Method"),
        notes=(
            CHECKPOINT_NOTE, LEVEL_NOTE,
            f"pass@k: unbiased estimate from n = {test.samples} samples per problem at temperature "
            "1, averaged over problems. Bold: best mean; underline: second. Mean and standard "
            "deviation (ddof 1) over seeds.",
        ),
        footer=(
            *intrinsic_lines(runs),
            *provenance([run for of_method in runs.values() for run in of_method]),
        ),
    )
    return mark_table(table, bold_max)


def level_name(level: int | str) -> str:
    """Heading of a level's columns."""
    return AVERAGE if level == AVERAGE else f"Level {level}"


def provenance(runs: Sequence[Run]) -> tuple[str, ...]:
    """Footer lines for the complete runs among ``runs``."""
    complete = [run for run in runs if run.status() == "complete"]
    records = [read_json(run.folder / "environment.json") for run in complete]
    machines = {
        f"{r['machine']['cpu']}, {r['machine']['cores']} cores, device {r['machine']['device']}"
        for r in records
    }
    return provenance_lines(
        [r["commit"] for r in records if r["commit"]],
        "; ".join(sorted(machines)),
        [run.config.hash for run in complete],
        any(r["dirty"] for r in records),
    )


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
