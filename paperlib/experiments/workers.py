"""Worker processes of a local grid: each does one job after the other.

Loading torch takes longer than a small job, so a worker is kept. A job is anything that can be
pickled, with a ``run``, a number of ``threads`` and a method ``work``.
"""

from __future__ import annotations

import os
import pickle
import queue
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paperlib.environment import ROOT
from paperlib.errors import UserError

if TYPE_CHECKING:
    from paperlib.experiments.grid import Job


class Worker:
    """A Python process that answers each job with a line on its stdout and ends with its stdin.

    ``first`` is the job it will get first, whose log also takes what goes wrong before that.
    ``gpu`` is the only one it sees, in CUDA's words; None: whatever this process sees.
    """

    def __init__(self, first: Job, gpu: str | None = None) -> None:
        self.job: Job | None = None
        self.gpu = gpu
        seen = {} if gpu is None else {"CUDA_VISIBLE_DEVICES": gpu}
        with open_log(first.run.folder) as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", "from paperlib.experiments.workers import main; main()"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
                env={**os.environ, **child_environment(first.threads), **seen},
            )
        os.set_blocking(self.process.stdout.fileno(), False)

    def start(self, job: Job) -> None:
        """Give it a job. Raises UserError if another process cannot import a reward term."""
        for term in job.run.config.terms:
            if type(term).__module__ == "__main__":
                raise UserError(
                    f"reward term {type(term).__name__} is defined in a notebook or script, where "
                    "other processes cannot import it; move it to a module or use "
                    "executor='inline'"
                )
        self.job = job
        try:  # the folder by itself, so that a job that cannot be read is reported in its log
            pickle.dump((job.run.folder, pickle.dumps(job)), self.process.stdin)
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # it died at once; its exit status tells

    def outcome(self) -> str | None:
        """``done``, ``failed`` or ``ended with status <n>``; None while the job runs."""
        status = self.process.poll()  # before the line is looked for: it may come just between
        line = self.process.stdout.readline()
        if line:
            self.job = None
            return line.decode().strip()
        if status is None:
            return None
        self.job = None
        return f"ended with status {status}"


def child_environment(threads: int) -> dict[str, str]:
    """The variables of a process that does jobs with so many threads, wherever it runs: it must
    import this paperlib and what this process can import, and draws no bars."""
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    path = os.pathsep.join([str(ROOT), *(p for p in sys.path if p)])
    return {
        **dict.fromkeys(names, str(threads)), "PAPERLIB_PROGRESS": "0", "PYTHONPATH": path,
        "PYTHONSAFEPATH": "1",  # python -c and -m would look in the working folder first
    }


def open_log(folder: Path) -> Any:
    """A run's log.txt, opened to append bytes; the folder is made if needed."""
    folder.mkdir(parents=True, exist_ok=True)
    return open(folder / "log.txt", "ab")


def attempt(folder: Path, work: Callable[[], None]) -> str:
    """Call ``work`` with all output of this process in the log of the run in ``folder``, errors
    too; ``done`` or ``failed``."""
    with open_log(folder) as log, _output_to(log):
        try:
            work()
        except UserError as error:
            print(f"error: {error}", file=sys.stderr)
            return "failed"
        except Exception:
            traceback.print_exc()
            return "failed"
    return "done"


@contextmanager
def _output_to(file: Any) -> Iterator[None]:
    """Descriptors 1 and 2 go to the file: what libraries and child processes print, too."""
    before = [(os.dup(number), number) for number in (1, 2)]
    try:
        for _, number in before:
            os.dup2(file.fileno(), number)
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for kept, number in before:
            os.dup2(kept, number)
            os.close(kept)


def main() -> None:
    """A worker's process: do the pickled jobs that come on stdin, one after the other.

    What a job prints goes to its run's log; the answer after each is a line on the first stdout.
    """
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what is printed between two jobs is no answer
    jobs: queue.SimpleQueue[tuple[Path, bytes]] = queue.SimpleQueue()

    def receive() -> None:
        with suppress(EOFError):
            while True:
                jobs.put(pickle.load(sys.stdin.buffer))
        os._exit(1)  # the parent is gone, or has no more to do

    threading.Thread(target=receive, daemon=True).start()
    while True:
        folder, pickled = jobs.get()
        answer = attempt(folder, lambda: pickle.loads(pickled).work())  # noqa: B023 (called here)
        print(answer, file=answers, flush=True)
