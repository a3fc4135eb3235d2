"""What a run writes down: metrics (JSON lines, trackers), rollouts (parquet), progress."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from tqdm.auto import tqdm

from paperlib.errors import UserError
from paperlib.files import read_jsonl, write_json_atomic, write_text_atomic
from paperlib.methods.rollouts import Rollouts
from paperlib.rl.trackers import open_tracker

# Every key of metrics.jsonl. <term> stands for the name of a reward term.
GLOSSARY = {
    "step": "generation step, from 1",
    "epoch": "problems drawn so far over problems in the data set",
    "accuracy": "share of kept completions with a right final answer",
    "accuracy_drawn": "the same over all drawn completions, dropped groups included",
    "reward": "mean over completions of the summed reward terms",
    "reward_std": "standard deviation of it over completions",
    "reward/<term>": "mean of one reward term",
    "reward_std/<term>": "standard deviation of one reward term over completions",
    "reward_nonzero/<term>": "share of completions for which the term is not 0",
    "length": "mean completion length in tokens, the end token included",
    "length_min": "shortest completion",
    "length_max": "longest completion",
    "truncated": "share of completions cut at max_completion_length",
    "groups_drawn": "groups sampled in this step",
    "groups_dropped": "groups dropped by dynamic sampling: no spread in raw accuracy",
    "groups_kept": "groups trained on",
    "groups_without_spread": "share of kept groups whose summed rewards are all equal: advantage 0",
    "generation_batches": "generation batches drawn in this step",
    "grading_failures": "answers that count as wrong because they could not be compared: too big, "
    "too slow or unreadable for the grader",
    "loss": "mean loss over the step's updates",
    "grad_norm": "gradient norm before clipping, mean over updates",
    "learning_rate": "learning rate of this step",
    "entropy": "mean entropy of the next-token distribution at completion tokens, in nats",
    "kl": "mean k3 estimate of the KL to the initial model; 0 when beta is 0",
    "kl_clamped": "tokens whose log-ratio to the initial model was clamped to +-20",
    "clip_low": "share of tokens with A < 0 and ratio < 1 - epsilon",
    "clip_high": "share of tokens with A > 0 and ratio > 1 + epsilon_high",
    "dual_clip": "share of tokens at the dual clip's bound",
    "ratio_max": "largest probability ratio",
    "updates": "optimiser steps taken",
    "skipped_updates": "optimiser steps left out because loss or gradient was not finite",
    "seconds/sample": "sampling and grading",
    "seconds/terms": "reward terms and advantages",
    "seconds/update": "forward and backward passes, optimiser",
    "seconds/checkpoint": "writing the checkpoint",
}


# Gets the rows of metrics.jsonl so far, after every step; what it returns is shown to the user.
Watch = Callable[[list[dict[str, float]]], list[str]]

STALL_STEPS = 4  # steps on end after which a run is told to teach nothing


class RunLog:
    """The open logs of a run whose first ``start`` steps are done.

    ``last`` are the metrics of step ``start``, for a run that was killed before it wrote them;
    after ``max_skipped_steps`` steps on end without an update the run is ended.
    """

    def __init__(
        self, folder: Path, start: int, max_steps: int, *, progress: bool,
        watch: Watch | None = None, trackers: Sequence[str] = ("tensorboard",),
        last: dict[str, float] | None = None, max_skipped_steps: int | None = None,
    ) -> None:
        self._path = folder / "metrics.jsonl"
        # Steps after the checkpoint are trained again: their lines go.
        rows = [row for row in read_jsonl(self._path) if row["step"] <= start]
        if last and last["step"] == start == len(rows) + 1:
            rows.append(last)
        if lost := sorted(set(range(1, start + 1)) - {row["step"] for row in rows}):
            raise UserError(
                f"{self._path} lacks {len(lost)} of the {start} steps that are done (the first is "
                f"step {lost[0]}). Nothing was changed. Put a copy back, or delete or move the "
                "run's folder to start from the beginning"
            )
        write_text_atomic(self._path, "".join(json.dumps(row) + "\n" for row in rows))
        self._file = self._path.open("a", encoding="utf-8")
        self._trackers = [open_tracker(name, folder, start) for name in trackers]
        hidden = not progress or os.environ.get("PAPERLIB_PROGRESS") == "0"
        self._bar = tqdm(total=max_steps, initial=start, disable=hidden, desc=folder.name)
        self._name, self._rows, self._watch = folder.name, rows, watch
        self._max_skipped_steps = max_skipped_steps
        if rows:  # a resumed run: what is going on already
            self._warn()

    def step(self, metrics: dict[str, float], notes: Sequence[str] = ()) -> None:
        """Append one step and show the user its notes, stalls and what the watch says."""
        check_there(self._path, metrics["step"])
        self._file.write(json.dumps(metrics) + "\n")
        self._file.flush()
        for tracker in self._trackers:
            tracker.log({k: v for k, v in metrics.items() if k != "step"}, step=metrics["step"])
        shown = ("accuracy", "reward", "length", "entropy")
        self._bar.set_postfix({k: f"{metrics[k]:.2f}" for k in shown if k in metrics})
        self._bar.update()
        self._rows.append(metrics)
        self._say([f"step {metrics['step']}: {text}" for text in notes] + stalls(self._rows))
        self._warn()
        limit = self._max_skipped_steps
        if limit and _streak(self._rows, _only_skipped) >= limit:
            raise UserError(
                f"step {metrics['step']}: no gradient was finite for {limit} steps on end "
                "(max_skipped_steps), so that nothing is learnt; valid are a lower learning_rate "
                "or a higher precision. What was written is kept"
            )

    def _warn(self) -> None:
        if self._watch is None:
            return
        try:
            texts = self._watch(self._rows)
        except Exception as error:  # a run outlives what only looks at it
            self._watch, texts = None, [f"no more warnings, they failed with {error!r}"]
        self._say(texts)

    def _say(self, texts: Sequence[str]) -> None:
        """Lines above the bar, and at once in the log of a background job."""
        for text in texts:
            tqdm.write(f"{self._name}: {text}")
        sys.stdout.flush()

    def close(self) -> None:
        self._file.close()
        for tracker in self._trackers:
            tracker.finish()
        self._bar.close()


def check_there(metrics: Path, step: int) -> None:
    """Refuse to go on if metrics.jsonl is gone: what is written to it goes nowhere."""
    if not metrics.exists():
        raise UserError(f"{metrics} was removed at step {step}; the run stops")


def write_complete(folder: Path, reason: str, step: int, seconds: float) -> None:
    """Write complete.json, the last thing that a run does."""
    check_there(folder / "metrics.jsonl", step)
    record = {"reason": reason, "step": step, "seconds": round(seconds, 1)}
    write_json_atomic(folder / "complete.json", record)


def stalls(rows: Sequence[dict[str, float]]) -> list[str]:
    """What has kept the run from learning for exactly STALL_STEPS steps, in words."""
    kinds = {
        "no group had spread in its rewards": lambda row: not row.get("groups_kept", 1)
        or row.get("groups_without_spread") == 1,
        "every completion was cut at max_completion_length": lambda row: row.get("truncated") == 1,
        "no gradient was finite": _only_skipped,
    }
    return [
        f"{what} for {STALL_STEPS} steps (now step {rows[-1]['step']}); such steps teach nothing"
        for what, holds in kinds.items() if _streak(rows, holds) == STALL_STEPS
    ]  # fmt: skip


def _only_skipped(row: dict[str, float]) -> bool:
    return bool(row.get("skipped_updates")) and not row.get("updates")


def _streak(rows: Sequence[dict[str, float]], holds: Callable[[dict[str, float]], bool]) -> int:
    """For how many rows up to the last it holds."""
    return next((i for i, row in enumerate(reversed(rows)) if not holds(row)), len(rows))


def rollout_metrics(
    rollouts: Rollouts, terms: dict[str, np.ndarray], rewards: np.ndarray, flat: float
) -> dict[str, float]:
    """What follows from the rollouts, the ``[n]`` values of each term, their sum ``rewards`` and
    the share ``flat`` of groups whose rewards have no spread; names in :data:`GLOSSARY`."""
    lengths = rollouts.lengths
    out = {
        "accuracy": float(rollouts.accuracy.mean()),
        "reward": float(rewards.mean()), "reward_std": float(rewards.std()),
        "length": float(lengths.mean()),
        "length_min": int(lengths.min()), "length_max": int(lengths.max()),
        "truncated": float(rollouts.truncated.mean()),
        "groups_without_spread": flat,
    }  # fmt: skip
    for name, values in terms.items():
        out[f"reward/{name}"] = float(values.mean())
        out[f"reward_std/{name}"] = float(values.std())
        out[f"reward_nonzero/{name}"] = float((values != 0).mean())
    return out


def write_rollouts(
    folder: Path, rollouts: Rollouts, terms: dict[str, np.ndarray], rewards: np.ndarray,
    advantages: np.ndarray,
) -> None:
    """One step's kept rollouts as ``rollouts/<step>.parquet``: what replay reads."""
    columns = {
        "step": np.full(len(rollouts), rollouts.step),
        "problem_id": rollouts.problem_ids,
        "completion": rollouts.completions,
        "gold": rollouts.golds,
        "accuracy": rollouts.accuracy,
        "length": rollouts.lengths,
        "truncated": rollouts.truncated,
        **{f"reward/{name}": values for name, values in terms.items()},
        "reward": rewards,
        "advantage": advantages,
    }
    if rollouts.layer_logits is not None:
        columns["layer_logits"] = list(rollouts.layer_logits)
    target = folder / "rollouts" / f"{rollouts.step:06d}.parquet"
    target.parent.mkdir(exist_ok=True)
    scratch = target.with_name(f".{target.name}.tmp")
    # checksums, so that a flipped bit is an error and not another number; dictionaries have none
    pq.write_table(pa.table(columns), scratch, compression="zstd", write_page_checksum=True,
                   use_dictionary=False)  # fmt: skip
    os.replace(scratch, target)
