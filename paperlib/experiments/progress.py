"""Progress of a grid: a bar for people, or lines on the terminal of whoever runs the notebook."""

import json
import os
import time
from collections.abc import Sequence
from contextlib import suppress

from paperlib.experiments.jobs import Job
from paperlib.experiments.store import Run

STATUS = "PAPERLIB_STATUS"  # the notebook runner's process id, a descriptor of its terminal, a name
SECONDS = 5.0  # between two lines


class Progress:
    """The state of the jobs of one grid. ``PAPERLIB_PROGRESS=0`` turns bars off."""

    def __init__(self, total: int, done: int) -> None:
        from tqdm.auto import tqdm

        self.bar = tqdm(total=total, initial=done, unit="run", dynamic_ncols=True,
                        disable=os.environ.get("PAPERLIB_PROGRESS") == "0")  # fmt: skip
        self.total, self.done = total, done
        self._text, self._told, self._told_at = "", "", 0.0
        runner, *rest = os.environ.get(STATUS, "").split(" ", 2)
        # a descriptor of the notebook's kernel only, not of what that starts
        self._terminal = rest if runner == str(os.getppid()) else None

    def show(self, running: Sequence[Job], queued: int = 0) -> None:
        """Name what runs now, and how many wait in a cluster's queue."""
        words = [f"{queued} queued"] * bool(queued) + [describe(job.run) for job in running]
        text = ", ".join(words)
        if text != self._text:  # this is called several times a second
            self._text = text
            self.bar.set_postfix_str(text)
        state = f"{self.done}/{self.total} runs; {text}"
        if self._terminal and state != self._told and time.monotonic() > self._told_at + SECONDS:
            self._told, self._told_at = state, time.monotonic()
            descriptor, name = self._terminal
            with suppress(OSError):  # nobody looks any more
                os.write(int(descriptor), f"{name}: {state}\n".encode())

    def advance(self) -> None:
        """One more job is over."""
        self.done += 1
        self.bar.update()


def describe(run: Run) -> str:
    """``DAPO s0 12/60``: method, seed and the last step in metrics.jsonl, of which the end only is
    read, since it is asked for all the time."""
    name = f"{run.config.method} s{run.config.seed}"
    if (run.folder / "complete.json").exists():
        return f"{name} evaluating"
    step = 0
    with suppress(OSError, IndexError, KeyError, ValueError):
        with open(run.folder / "metrics.jsonl", "rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 16384))
            lines = file.read().split(b"\n")
        step = int(json.loads(lines[-2])["step"])  # lines[-1] is empty or half-written
    return f"{name} {step}/{run.config.max_steps}"
