"""What a run writes down: metrics (JSON lines, trackers), rollouts (parquet), progress.

``paperlib/rl/README.md`` explains every metric. ``report_to`` names who gets them besides
metrics.jsonl, with commas between; it changes no result and is no part of a config. The default
writes TensorBoard's files into the run's folder. trackio keeps a local database unless its own
environment variables (TRACKIO_SPACE_ID, ...) say otherwise; wandb sends to its service
(WANDB_MODE=offline: not yet). Nothing is sent unless one of the two is named.
"""

import json
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from tqdm.auto import tqdm

from paperlib.errors import UserError, check_choice
from paperlib.files import read_json, read_jsonl, short_hash, write_json_atomic, write_text_atomic
from paperlib.methods.rollouts import Rollouts

# Gets the rows of metrics.jsonl so far, after every step; what it returns is shown to the user.
Watch = Callable[[list[dict[str, float]]], list[str]]

TRACKERS = ("tensorboard", "trackio", "wandb")  # each is the name of its package, too
STALL_STEPS = 4  # steps on end after which a run is told to teach nothing
NO_GRADIENT = "no gradient was finite"
STALLS: dict[str, Callable[[dict[str, float]], bool]] = {
    "no group had spread in its rewards": lambda row: not row.get("groups_kept", 1)
    or row.get("groups_without_spread") == 1,
    "every completion was cut at max_completion_length": lambda row: row.get("truncated") == 1,
    NO_GRADIENT: lambda row: bool(row.get("skipped_updates")) and not row.get("updates"),
}


def check_trackers(report_to: str) -> tuple[str, ...]:
    """The names in ``report_to``, each once; "none" or an empty text: none."""
    names = tuple(dict.fromkeys(n.strip() for n in report_to.split(",") if n.strip()))
    if names == ("none",):
        return ()
    for name in names:
        check_choice("report_to", name, TRACKERS)
        if find_spec(name) is None:
            raise UserError(f"report_to names {name}, which is not installed: pip install {name}")
    return names


def open_tracker(name: str, folder: Path, start: int) -> Any:
    """What has ``log(metrics, step=...)`` and ``finish()``, for a run that has done ``start``
    steps. A resumed run goes on under its old name, one that was deleted and trained anew has a
    new one: the name tells when the folder was made."""
    if name == "tensorboard":
        from torch.utils.tensorboard import SummaryWriter

        # steps after the checkpoint are trained again: their points go
        writer = SummaryWriter(str(folder / "tensorboard"), purge_step=start + 1)
        writer.log, writer.finish = partial(_add_scalars, writer), writer.close
        return writer
    title = f"{folder.name}-{short_hash(read_json(folder / 'environment.json'))}"
    own = {"id": title, "dir": str(folder)} if name == "wandb" else {}
    config = read_json(folder / "config.json")
    return import_module(name).init(
        project="paperlib", name=title, resume="allow", config=config, **own
    )


def _add_scalars(writer: Any, metrics: dict[str, float], step: int) -> None:
    for name, value in metrics.items():
        writer.add_scalar(name, value, step)


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
        self._name, self._watch, self._max_skipped_steps = folder.name, watch, max_skipped_steps
        self._path = folder / "metrics.jsonl"
        # Steps after the checkpoint are trained again: their lines go.
        rows = self._rows = [row for row in read_jsonl(self._path) if row["step"] <= start]
        if last and last["step"] == start == len(rows) + 1:
            rows.append(last)
        if lost := sorted(set(range(1, start + 1)) - {row["step"] for row in rows}):
            raise UserError(
                f"{self._path} lacks {len(lost)} of the {start} steps that are done (the first is "
                f"step {lost[0]}). Put a copy back, or delete or move the run's folder"
            )
        write_text_atomic(self._path, "".join(json.dumps(row) + "\n" for row in rows))
        self._file = self._path.open("a", encoding="utf-8")
        self._trackers = [open_tracker(name, folder, start) for name in trackers]
        hidden = not progress or os.environ.get("PAPERLIB_PROGRESS") == "0"
        self._bar = tqdm(total=max_steps, initial=start, disable=hidden, desc=folder.name)
        if rows:  # a resumed run: what is going on already
            self._say(self._warnings())

    def step(self, metrics: dict[str, float], notes: Sequence[str] = ()) -> None:
        """Append one step and show the user its notes, stalls and what the watch says."""
        step = metrics["step"]
        self._check_there(step)
        self._file.write(json.dumps(metrics) + "\n")
        self._file.flush()
        for tracker in self._trackers:
            tracker.log({k: v for k, v in metrics.items() if k != "step"}, step=step)
        shown = ("accuracy", "reward", "length", "entropy")
        self._bar.set_postfix({k: f"{metrics[k]:.2f}" for k in shown if k in metrics})
        self._bar.update()
        self._rows.append(metrics)
        stalled = {what: _streak(self._rows, holds) for what, holds in STALLS.items()}
        self._say([f"step {step}: {text}" for text in notes] + [
            f"{what} for {STALL_STEPS} steps (now step {step}); such steps teach nothing"
            for what, steps in stalled.items() if steps == STALL_STEPS
        ] + self._warnings())  # fmt: skip
        limit = self._max_skipped_steps
        if limit and stalled[NO_GRADIENT] >= limit:
            raise UserError(
                f"step {step}: {NO_GRADIENT} for {limit} steps on end (max_skipped_steps); valid "
                "are a lower learning_rate or a higher precision. What was written is kept"
            )

    def _warnings(self) -> list[str]:
        try:
            return self._watch(self._rows) if self._watch else []
        except Exception as error:  # a run outlives what only looks at it
            self._watch = None
            return [f"no more warnings, they failed with {error!r}"]

    def _say(self, texts: Sequence[str]) -> None:
        """Lines above the bar, and at once in the log of a background job."""
        for text in texts:
            tqdm.write(f"{self._name}: {text}")
        sys.stdout.flush()

    def _check_there(self, step: int) -> None:
        if not self._path.exists():  # what is written to it goes nowhere
            raise UserError(f"{self._path} was removed at step {step}; the run stops")

    def complete(self, reason: str, seconds: float) -> None:
        """Write complete.json, the last thing that a run does."""
        step = len(self._rows)
        self._check_there(step)
        record = {"reason": reason, "step": step, "seconds": round(seconds, 1)}
        write_json_atomic(self._path.with_name("complete.json"), record)

    def close(self) -> None:
        self._file.close()
        for tracker in self._trackers:
            tracker.finish()
        self._bar.close()


def _streak(rows: Sequence[dict[str, float]], holds: Callable[[dict[str, float]], bool]) -> int:
    """For how many rows up to the last it holds."""
    return next((i for i, row in enumerate(reversed(rows)) if not holds(row)), len(rows))


def rollout_metrics(
    rollouts: Rollouts, terms: dict[str, np.ndarray], rewards: np.ndarray, flat: float
) -> dict[str, float]:
    """What follows from the rollouts, the ``[n]`` values of each term, their sum ``rewards`` and
    the share ``flat`` of groups whose rewards have no spread."""
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
