"""Tables of scores from the run store, both Table 1s, and what happened in their runs."""

import filecmp
from collections.abc import Mapping, Sequence

import pandas as pd

from paperlib.evaluation.settings import EvalSettings
from paperlib.experiments.recipes import METHODS, eval_settings, methods
from paperlib.experiments.rows import Runs
from paperlib.experiments.sizes import short_name
from paperlib.experiments.store import Run
from paperlib.files import read_json
from paperlib.report.cells import bold_max, cohen_marks
from paperlib.report.scores import CHECKPOINTS, checkpoint_score, columns_of, level_name, level_note
from paperlib.report.tables import NOTES, Cell, Column, Row, Table
from paperlib.rl.config import OVERSAMPLING

INTRINSIC = ("exploit", "explore", "cluster_penalty")
# Methods with a memory, and the methods they add one memory to.
RIVALS = {"Memory-R": ("R1",), "Memory-R+": ("R1", "Memory-R"), "MEDS": ("DAPO",)}
# Headings of what happened in a run, and the metrics that are shares.
COUNTS = ("steps", "epochs", "updates", "groups dropped")
SHARES = {"clip low": "clip_low", "clip high": "clip_high", "truncated": "truncated",
          "no spread": "groups_without_spread"}  # fmt: skip
Head = tuple[int | str, str, int]  # of a column of scores: level, checkpoint, k of pass@k


def score_columns(heads: Sequence[Head], task: str) -> tuple[Column, ...]:
    """Named by the checkpoint where there are several, else by k."""
    several = len({which for _, which, _ in heads}) > 1
    return tuple(
        Column(which if several else f"pass@{k}", level_name(level, task))
        for level, which, k in heads
    )


def score_rows(
    runs: Mapping[str, Sequence[Run]], heads: Sequence[Head], test: EvalSettings,
    validation: EvalSettings, group: str = "",
) -> list[Row]:
    """A row for each of ``runs``. What is not trained has its one checkpoint as "last" alone."""
    rows = []
    for label, of_row in runs.items():
        trained = any(run.config.max_steps for run in of_row)
        cells = [
            Cell.from_seeds(checkpoint_score(r, which, test, validation, k, level) for r in of_row)
            if trained or which == "last" else None
            for level, which, k in heads
        ]  # fmt: skip
        rows.append(Row(label, tuple(cells), group))
    return rows


def table1(
    paper: str, runs: Mapping[str, Runs], profile: str, preset: str, engine: str = "ours",
    checkpoints: Sequence[str] = CHECKPOINTS,
) -> Table:
    """Table 1 of a paper from its runs by model: of "memory_r" accuracy at each kind of checkpoint,
    with rows sampled at temperature 1 (mean over n samples) and greedy ones; of "meds" pass@1 and
    pass@n, with rows for each kind of checkpoint."""
    rows = []
    for model, of_model in runs.items():
        validation, test = (
            eval_settings(paper, profile, split, model=model) for split in ("validation", "test")
        )
        levels = columns_of(test.task)
        if paper == "memory_r":
            heads = [(level, which, 1) for level in levels for which in checkpoints]
            greedy = eval_settings(paper, profile, "test", greedy=True, model=model)
            blocks = {"temperature 1": (heads, test), "greedy": (heads, greedy)}
        else:
            blocks = {
                "max (optimistic)" if which == "max" else which: (
                    [(level, which, k) for level in levels for k in (1, test.samples)], test
                )
                for which in checkpoints
            }
        for name, (heads, settings) in blocks.items():
            rows += score_rows(of_model, heads, settings, validation, _prefix(model) + name)
    sampled = NOTES["pass"].format(test.samples)
    title, score, header, note, rule = {
        "memory_r": ("Memory-R+ Table 1", "accuracy", "decoding", NOTES["cohen"], cohen_marks),
        "meds": ("MEDS Table 1", "pass@k", "checkpoint", sampled, bold_max),
    }[paper]
    by = "" if engine == "ours" else f", engine {engine}"
    return Table(
        title=f"{title}, profile {profile}, preset {preset}{by}: {score} in percent",
        columns=score_columns(heads, test.task),
        rows=tuple(rows),
        row_headers=(f"Model, {header}" if _prefix(model) else header.capitalize(), "Method"),
        notes=(checkpoint_note(checkpoints), level_note(test.task), note),
        footer=_footer(paper, runs, engine),
        rule=rule,
    )


def checkpoint_note(checkpoints: Sequence[str]) -> str:
    """What the kinds of checkpoints are."""
    return " ".join([NOTES["checkpoints"], *([NOTES["max"]] if "max" in checkpoints else [])])


def _prefix(model: str) -> str:
    """Before what belongs to a model; the tiny world has a single one, which is not named."""
    return "" if model == "tiny" else f"{short_name(model)}, "


def _footer(paper: str, runs: Mapping[str, Runs], engine: str) -> tuple[str, ...]:
    """What the memories did, model by model, which rows the engine refuses, and where all numbers
    come from."""
    lines = [f"{_prefix(model)}{x}" for model, of in runs.items() for x in intrinsic_lines(of)]
    refused = [m for m in METHODS[paper] if m not in methods(paper, engine)]
    if refused:
        lines.append(f"Not in this table: {', '.join(refused)}, which engine {engine} refuses.")
    every = [run for of in runs.values() for of_method in of.values() for run in of_method]
    return (*lines, *provenance(every))


def provenance(runs: Sequence[Run]) -> tuple[str, ...]:
    """Footer: commits, machines and configs of the complete runs among ``runs``; which of them TRL
    trained, and what it does approximately."""
    complete = [run for run in runs if run.status() == "complete"]
    if not complete:
        return ("No run stands behind this table yet.",)
    records = [read_json(run.folder / "environment.json") for run in complete]
    commits = sorted({r["commit"][:10] for r in records if r["commit"]})
    dirty = " with uncommitted changes" if any(r["dirty"] for r in records) else ""
    machines = {
        f"{r['machine']['cpu']}, {r['machine']['cores']} cores, device {r['machine']['device']}"
        for r in records
    }
    hashes = sorted({run.config.hash for run in complete})
    lines = [
        f"Commit: {', '.join(commits) or 'unknown'}{dirty}",
        f"Machine: {'; '.join(sorted(machines))}",
        f"{len(hashes)} runs, config hashes: {', '.join(hashes)}",
    ]
    if of_trl := [run.config for run in complete if run.config.engine == "trl"]:
        lines.append(f"Engine: TRL in {len(of_trl)} of {len(complete)} runs.")
    if drawn_once := sorted({config.method for config in of_trl if config.dynamic_sampling}):
        lines.append(
            f"Approximation: in {', '.join(drawn_once)} dynamic sampling is one draw of "
            f"{OVERSAMPLING} times the groups; where fewer have spread than a step needs, the step "
            "learns from fewer."
        )
    return tuple(lines)


def intrinsic_lines(runs: Runs) -> list[str]:
    """Footer: did the memories act, by the share of steps of the seed with the fewest, and did they
    change what was learned, by the final weights?"""
    lines = []
    for method, rivals in RIVALS.items():
        done = [run for run in runs.get(method, []) if run.status() == "complete"]
        if not done:
            continue
        for term in (t.name for t in done[0].config.terms if t.name in INTRINSIC):
            acted = min((run.metrics()[f"reward_nonzero/{term}"] > 0).mean() for run in done)
            lines.append(
                f"{method}: {term} is not 0 for some rollouts in at least {100 * acted:.0f} % of "
                "the steps of every seed."
            )
        pairs = [pair for rival in rivals for pair in zip(runs[method], runs[rival], strict=True)]
        ends = [
            [run.checkpoints()[-1][1] / "model.safetensors" for run in pair]
            for pair in pairs
            if {run.status() for run in pair} == {"complete"}
        ]
        differ = sum(not filecmp.cmp(*pair, shallow=False) for pair in ends)
        lines.append(
            f"{method}: final weights differ from {' and '.join(rivals)} in {differ} of "
            f"{len(ends)} pairs of equal seed."
        )
    return lines


def run_summary(runs: Runs, name: str = "Table 1") -> Table:
    """What happened in training, per method: did clipping, resampling and every term act?"""
    trained = {m: [r for r in rs if r.config.max_steps] for m, rs in runs.items() if m != "Base"}
    found = {
        method: pd.DataFrame(
            [_what_happened(run.metrics()) for run in of_method if run.status() == "complete"],
            dtype=float,
        )
        for method, of_method in trained.items()
    }
    terms = {head for of_method in found.values() for head in of_method}
    heads = [*COUNTS, *SHARES, *sorted(terms - {*COUNTS, *SHARES})]

    def cell(method: str, head: str) -> Cell | None:
        done, promised = found[method], len(trained[method])
        if len(done) and head not in done:
            return None  # not a term of this method
        return Cell.from_seeds([*done.get(head, ()), *[None] * (promised - len(done))])

    return Table(
        title=f"What happened in the runs of {name}",
        columns=tuple(map(Column, heads)),
        rows=tuple(Row(method, tuple(cell(method, head) for head in heads)) for method in found),
        decimals=2,
        notes=(NOTES["training"],),
        footer=provenance([r for rs in trained.values() for r in rs]),
    )


def _what_happened(metrics: pd.DataFrame) -> dict[str, float]:
    """Of one run, by heading; shares are means over steps in percent."""
    terms = {f"{c.split('/')[1]} ≠ 0": c for c in metrics if c.startswith("reward_nonzero/")}
    named = {head: name for head, name in (SHARES | terms).items() if name in metrics}
    dropped = 100 * metrics["groups_dropped"].sum() / metrics["groups_drawn"].sum()
    last = metrics.iloc[-1]
    counts = last["step"], last["epoch"], metrics["updates"].sum(), dropped
    shares = {head: 100 * metrics[name].mean() for head, name in named.items()}
    return dict(zip(COUNTS, counts, strict=True)) | shares
