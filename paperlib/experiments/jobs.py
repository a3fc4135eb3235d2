"""A job of a grid: what is to be done for one run, and the process that does it.

``python -m paperlib.experiments.jobs <file>`` is that process, wherever it runs; before it stands
accelerate where it is several. Its crash or its kill (out of memory, say) costs this job alone.
"""

import os
import pickle
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from paperlib.environment import ROOT, launcher_rank
from paperlib.errors import UserError
from paperlib.evaluation.settings import EvalSettings
from paperlib.experiments.store import Run
from paperlib.processes import end_with_stdin, run_all, start

GRACE_SECONDS = 40.0  # for accelerate to end its processes, which it gives 30 s
LOGGED = "the run failed, and its log.txt tells why"


@dataclass(frozen=True)
class Job:
    """Train a run, then evaluate its checkpoints; called, in processes of its own."""

    run: Run
    evaluations: tuple[EvalSettings, ...]
    which: str  # "last", "all" or "chosen", see checkpoints
    threads: int
    device: str
    report_to: str = "tensorboard"
    processes: int = 1
    launch: Path | None = None  # accelerate's file for several processes

    def checkpoints(self) -> Iterator[tuple[EvalSettings, int]]:
        """What is to be evaluated how, in order: settings and the step of a checkpoint. "chosen":
        all of them in the first way; in the others the last, and the one that is best in it."""
        steps = [step for step, _ in self.run.checkpoints()]
        if self.which == "last":
            steps = steps[-1:]
        for number, settings in enumerate(self.evaluations):
            if number == 1 and self.which == "chosen":  # the first is there by now
                best = self.run.best_step(self.evaluations[0])
                steps = sorted({steps[-1], steps[-1] if best is None else best})
            yield from ((settings, step) for step in steps)

    def done(self) -> bool:
        """Whether nothing is left to do; reads names and the run's small JSON files, and
        for "chosen" its evaluations in the first way."""
        return self.run.status() == "complete" and all(
            self.run.evaluation_path(step, settings).exists()
            for settings, step in self.checkpoints()
        )  # fmt: skip

    def work(self) -> None:
        """Do it, here and now: in each process of a launcher; the first one alone evaluates."""
        from paperlib.rl.policy import resolve_device

        device = str(resolve_device(self.device))
        more = {"vllm": True} if self.launch and "vllm" in self.launch.name else {}
        self.run.ensure(device=device, progress=False, report_to=self.report_to, **more)
        if launcher_rank():
            return
        for settings, step in self.checkpoints():
            self.run.evaluation(step, settings, device=device, progress=False)

    def start(self, scratch: str, gpu: str | None = None) -> subprocess.Popen:
        """Begin it in a process of its own, or by accelerate in several, that end with this one;
        its pickle lies in the private folder ``scratch``; no GPU but ``gpu`` is seen."""
        import cloudpickle  # a reward term of a notebook goes by its code

        file = Path(scratch, f"{self.run.config.name}.pkl")
        file.write_bytes(cloudpickle.dumps(self))
        command = [sys.executable, "-m"]
        if self.processes > 1:
            command += ["accelerate.commands.launch", "--config_file", str(self.launch),
                        "--num_processes", str(self.processes),
                        "--main_process_port", "0", "-m"]  # any free port  # fmt: skip
        command += ["paperlib.experiments.jobs", str(file)]
        seen = {} if gpu is None else {"CUDA_VISIBLE_DEVICES": gpu}
        with self._log() as log:
            return start(command, child_environment(self.threads) | seen, log)

    def __call__(self) -> None:
        """What SLURM runs."""
        with tempfile.TemporaryDirectory(prefix="paperlib-") as scratch:
            failed = run_all([self], [scratch], Job.start, Job.ended, grace_seconds=GRACE_SECONDS)
        if failed:
            raise RuntimeError(LOGGED)

    def checkpoint(self) -> Any:
        """What submitit queues when the task must stop: the same, which resumes."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)

    def ended(self, status: int) -> None:
        """Note in the log how the process ended, unless well."""
        if status:
            self.note(f"the process ended with status {status}")

    def note(self, text: str) -> None:
        """Append a line to the run's log."""
        with self._log() as log:
            log.write(f"{text}\n".encode())

    def _log(self) -> BinaryIO:
        self.run.folder.mkdir(parents=True, exist_ok=True)
        return open(self.run.folder / "log.txt", "ab")

    def log_tail(self) -> str:
        """The last 15 lines of the run's log, below the folder's name."""
        text = (self.run.folder / "log.txt").read_text(encoding="utf-8", errors="replace")
        return "\n".join([f"{self.run.folder}:", *text.splitlines()[-15:]])


def child_environment(threads: int) -> dict[str, str]:
    """The variables of a process that does jobs with so many threads: it imports this paperlib and
    what this process can import, and draws no bars."""
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    path = os.pathsep.join([str(ROOT), *(p for p in sys.path if p)])
    return {
        **dict.fromkeys(names, str(threads)), "PAPERLIB_PROGRESS": "0", "PYTHONPATH": path,
        "PYTHONSAFEPATH": "1",  # python -m would look in the working folder first
    }


def main(file: str) -> None:
    end_with_stdin()
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)  # SLURM's warning is for the process above
    job: Job = pickle.loads(Path(file).read_bytes())
    try:
        job.work()
    except UserError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main(*sys.argv[1:])
