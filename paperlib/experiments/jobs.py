"""A job of a grid: what is to be done for one run, and the process that does it.

``python -m paperlib.experiments.jobs <file>`` is that process, wherever it runs; before it stands
accelerate where it is several. Its crash or its kill (out of memory, say) costs this job alone.
"""

import os
import pickle
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from paperlib.environment import ROOT, launcher_rank
from paperlib.errors import UserError
from paperlib.evaluation.settings import EvalSettings
from paperlib.experiments.store import Run


@dataclass(frozen=True)
class Job:
    """Train a run, then evaluate its checkpoints."""

    run: Run
    evaluations: tuple[EvalSettings, ...]
    which: str  # "last" or "all" checkpoints
    threads: int
    device: str
    report_to: str = "tensorboard"

    def steps(self) -> list[int]:
        """The steps of the checkpoints to evaluate."""
        steps = [step for step, _ in self.run.checkpoints()]
        return steps[-1:] if self.which == "last" else steps

    def done(self) -> bool:
        """Whether nothing is left to do; reads names and the run's small JSON files only."""
        return self.run.status() == "complete" and all(
            self.run.evaluation_path(step, settings).exists()
            for step in self.steps()
            for settings in self.evaluations
        )

    def work(self, **train_kwargs: Any) -> None:
        """Do it, here and now: in each process of a launcher; the first one alone evaluates."""
        from paperlib.rl.policy import resolve_device

        device = str(resolve_device(self.device))
        self.run.ensure(device=device, progress=False, report_to=self.report_to, **train_kwargs)
        if launcher_rank():
            return
        for step in self.steps():
            for settings in self.evaluations:
                self.run.evaluation(step, settings, device=device, progress=False)

    def start(
        self, scratch: Path, gpu: str | None = None, processes: int = 1, launch: Path | None = None
    ) -> subprocess.Popen:
        """Begin it in a process of its own, or by accelerate in several, as its file ``launch``
        says; they end when their stdin is closed. The job's pickle lies in the private folder
        ``scratch``; ``gpu`` is the only one that is seen."""
        import cloudpickle  # a reward term of a notebook goes by its code

        file = scratch / f"{self.run.config.name}.pkl"
        file.write_bytes(cloudpickle.dumps(self))
        command = [sys.executable, "-m"]
        if processes > 1:
            command += ["accelerate.commands.launch", "--config_file", str(launch),
                        "--num_processes", str(processes), "--main_process_port", "0",  # any free
                        "-m"]  # fmt: skip
        command += ["paperlib.experiments.jobs", str(file)]
        command += ["--vllm"] if launch and "vllm" in launch.name else []
        environment = {**os.environ, **child_environment(self.threads)}
        if gpu is not None:
            environment["CUDA_VISIBLE_DEVICES"] = gpu
        with self.open_log() as log:
            return subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=log, stderr=log, env=environment
            )

    def open_log(self) -> BinaryIO:
        """The run's log.txt, to append to; the folder is made if needed."""
        self.run.folder.mkdir(parents=True, exist_ok=True)
        return open(self.run.folder / "log.txt", "ab")

    def note(self, text: str) -> None:
        """Append a line to the run's log."""
        with self.open_log() as log:
            log.write(f"{text}\n".encode())

    def succeeded(self, process: subprocess.Popen) -> bool:
        """Whether the process, which has ended, did the job; if not, the log tells its status."""
        process.stdin.close()
        if process.returncode:
            self.note(f"the process ended with status {process.returncode}")
        return not process.returncode

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


def _end_with_stdin() -> None:
    os.read(0, 1)  # nothing ever comes
    os._exit(1)  # whoever started this is gone


def main(file: str, *flags: str) -> None:
    threading.Thread(target=_end_with_stdin, daemon=True).start()
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)  # SLURM's warning is for the process above
    job: Job = pickle.loads(Path(file).read_bytes())
    try:
        job.work(**({"vllm": True} if "--vllm" in flags else {}))
    except UserError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main(*sys.argv[1:])
