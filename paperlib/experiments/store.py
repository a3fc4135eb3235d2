"""The run store: asking for a run trains it, resumes it or reads it.

    runs/<profile>/<paper>-<method>-s<seed>-<hash of the config>/

The folder's layout is described in paperlib/rl/train.py, which writes it. Everything here reads,
except ``evaluations/``. Nothing here ever deletes a run.
"""

import os
import socket
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pandas as pd
from filelock import FileLock, Timeout

from paperlib.environment import launcher_rank
from paperlib.errors import UserError
from paperlib.evaluation.passk import score
from paperlib.evaluation.settings import EvalSettings
from paperlib.files import (
    as_json,
    by_step,
    disk_errors,
    read_json,
    read_jsonl,
    whole_checkpoints,
    write_json_atomic,
)
from paperlib.rl.config import RunConfig

# what a run may hold before its config.json is written
_EARLY_FILES = {"lock", "lock.json", "log.txt", "environment.json"}


class Store:
    """All runs below ``root``. Making one touches no file."""

    def __init__(self, root: Path | str = "runs") -> None:
        self.root = Path(root)

    def run(self, config: RunConfig) -> "Run":
        """The run of a config, whether it exists yet or not."""
        return Run(config, self.root / config.profile / config.name)

    def folders(self) -> list[Path]:
        """The folders of all runs there are, of every profile, sorted."""
        return sorted(path.parent for path in self.root.glob("*/*/config.json"))


def folder_status(folder: Path, config: RunConfig | None = None) -> str:
    """``missing``, ``partial``, ``complete``, ``foreign`` (another config's) or ``damaged``.

    Without ``config`` the folder's own config is trusted.
    """
    names = {p.name for p in folder.iterdir()} if folder.is_dir() else set()
    if "config.json" not in names:
        extra = {n for n in names if n not in _EARLY_FILES and not n.endswith(".tmp")}
        return "damaged" if extra else "missing"
    try:
        stored = read_json(folder / "config.json")
        if config is not None and stored != as_json(config.to_dict()):
            return "foreign"
        if "complete.json" not in names:
            return "partial"
        last = read_json(folder / "complete.json")["step"]
    except (UserError, KeyError, TypeError):
        return "damaged"
    return "complete" if last in whole_checkpoints(folder) else "damaged"


class Run:
    """One run: its config, its folder and what lies there."""

    def __init__(self, config: RunConfig, folder: Path) -> None:
        self.config = config
        self.folder = folder

    def __repr__(self) -> str:
        return f"Run({self.config.name}, {self.status()})"

    def status(self) -> str:
        """See :func:`folder_status`."""
        return folder_status(self.folder, self.config)

    def ensure(self, **train_kwargs: Any) -> "Run":
        """Train the run, resume it, or return at once if it is complete. While another process
        works on it, wait, then read what it made.

        ``train_kwargs`` go to :func:`paperlib.rl.train.train`; warnings of collapses are shown
        unless they say otherwise. A folder that holds something else or is damaged stays as it is.
        """
        if self._complete():
            return self
        with self._locked():
            if not self._complete():  # nobody finished it while we waited
                from paperlib.evaluation.collapse import CollapseWatch

                if self.config.engine == "trl":
                    from paperlib.rl.trl_engine import train
                else:
                    from paperlib.rl.train import train

                train(self.config, self.folder, **{"watch": CollapseWatch(), **train_kwargs})
        return self

    def metrics(self) -> pd.DataFrame:
        """One row a generation step, in order; empty before the first."""
        return pd.DataFrame(read_jsonl(self.folder / "metrics.jsonl"))

    def rollouts(self, steps: Iterable[int] | None = None) -> pd.DataFrame:
        """The stored rollouts of ``steps`` (default: of all), one row a completion."""
        files = by_step(self.folder.glob("rollouts/*.parquet"), ".parquet")
        wanted = files if steps is None else steps
        frames = [_read_parquet(self._of_step(step, files, "rollouts")) for step in wanted]
        return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()

    def checkpoints(self) -> list[tuple[int, Path]]:
        """``(step, folder)`` of every whole checkpoint, by step."""
        return list(whole_checkpoints(self.folder).items())

    def evaluation_path(self, step: int, settings: EvalSettings) -> Path:
        """Where the evaluation of a checkpoint under some settings lies or will lie."""
        return self.folder / "evaluations" / f"{step:06d}-{settings.name}.json"

    def best_step(self, validation: EvalSettings) -> int | None:
        """The checkpoint with the highest pass@1 in stored evaluations, the earliest of several;
        None if some checkpoint has none."""
        paths = {step: self.evaluation_path(step, validation) for step, _ in self.checkpoints()}
        if not paths or not all(path.exists() for path in paths.values()):
            return None
        scores = {step: score(read_json(path), 1) for step, path in paths.items()}
        return max(scores, key=lambda step: (scores[step], -step))

    def evaluation(self, step: int, settings: EvalSettings, **evaluate_kwargs: Any) -> dict:
        """What :func:`paperlib.evaluation.harness.evaluate` returns; computed once, then read."""
        path = self.evaluation_path(step, settings)
        if not path.exists():
            checkpoint = self._of_step(step, dict(self.checkpoints()), "checkpoint")
            with self._locked():
                if not path.exists():  # nobody computed it while we waited
                    from paperlib.evaluation.harness import evaluate
                    from paperlib.rl.checkpoint import check_policy

                    check_policy(checkpoint)
                    write_json_atomic(path, evaluate(checkpoint, settings, **evaluate_kwargs))
        result = read_json(path)
        if not isinstance(result, dict) or result.get("settings") != as_json(settings.to_dict()):
            raise UserError(f"{path} was made with other settings; delete it to have it computed")
        return result

    def _of_step(self, step: int, there: dict[int, Path], what: str) -> Path:
        if step not in there:
            has = ", ".join(map(str, there)) or "none"
            raise UserError(f"{self.config.name} has no {what} of step {step}; it has {has}")
        return there[step]

    def _complete(self) -> bool:
        """Whether nothing is left to train; a damaged folder is refused, and training refuses a
        foreign one."""
        status = self.status()
        if status == "damaged":
            raise UserError(
                f"the run folder {self.folder} is damaged: its config.json or complete.json cannot "
                "be read, or its last checkpoint is gone. Delete or move it to train the run anew"
            )
        return status == "complete"

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the run's lock, which ends with the process; a launcher's first has it for all."""
        with disk_errors(self.folder):
            if launcher_rank():
                yield
                return
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = FileLock(self.folder / "lock")
            holder = self.folder / "lock.json"  # for people; only the lock itself counts
            try:
                lock.acquire(blocking=False)
            except Timeout:
                who = ""
                with suppress(OSError):  # it is just being removed
                    who = holder.read_text()
                print(f"{self.config.name}: waiting for another process, which is working on it",
                      " ".join(who.split()), file=sys.stderr, flush=True)  # fmt: skip
                lock.acquire()
            try:
                write_json_atomic(holder, {"pid": os.getpid(), "host": socket.gethostname()})
                yield
            finally:
                holder.unlink(missing_ok=True)
                lock.release()


def _read_parquet(path: Path) -> pd.DataFrame:
    try:
        return pd.read_parquet(path, page_checksum_verification=True)
    except (OSError, ValueError) as error:  # pyarrow's own are kinds of these
        raise UserError(f"{path} cannot be read ({error}); it is damaged") from error
