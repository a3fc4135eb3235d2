"""Many runs at once: train what is missing, then evaluate what is not evaluated yet.

Every run computes with the same number of threads whatever the executor, so that the executor and
the number of jobs never change a result. What is complete costs a look at the disk.

    runs = grid([recipe("meds", m, "tiny", s) for m in ("DAPO", "MEDS") for s in (0, 1)],
                evaluations=[settings])

Local jobs are done by worker processes. The crash or the kill of one (out of memory, say) costs
the job it had and no other, and a worker ends itself when the parent is gone. On a cluster the
same call goes through SLURM (:mod:`paperlib.experiments.slurm`).
"""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paperlib.environment import available_cores, launcher_rank
from paperlib.errors import UserError, check_choice
from paperlib.evaluation.settings import EvalSettings
from paperlib.experiments.progress import Progress
from paperlib.experiments.store import Run, Store
from paperlib.experiments.workers import Worker, open_log
from paperlib.processes import stop_all
from paperlib.rl.config import RunConfig
from paperlib.rl.trackers import check_trackers

POLL_SECONDS = 0.5
LOG_LINES = 15  # of a failed run's log, in the error


@dataclass(frozen=True)
class Job:
    """What is to be done for one run: train it, then evaluate its checkpoints."""

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
        """Do it, here and now, with a fixed number of threads.

        In each process of a launcher, to train; the first one alone evaluates.
        """
        from paperlib.rl.policy import resolve_device

        device = str(resolve_device(self.device))
        with fixed_threads(self.threads):
            self.run.ensure(
                device=device, progress=False, report_to=self.report_to, **train_kwargs
            )
            if launcher_rank():
                return
            for step in self.steps():
                for settings in self.evaluations:
                    self.run.evaluation(step, settings, device=device, progress=False)


def grid(
    configs: Iterable[RunConfig],
    evaluations: Sequence[EvalSettings] = (),
    *,
    checkpoints: str = "last",
    store: Store | None = None,
    executor: str = "local",
    jobs: int | None = None,
    threads: int = 1,
    device: str = "auto",
    slurm: Mapping[str, Any] | None = None,
    report_to: str = "tensorboard",
) -> list[Run]:
    """Complete the run of every config and evaluate it; the runs in the order of ``configs``.

    Args:
        evaluations: computed for the chosen ``checkpoints`` ("last" or "all") of every run.
        store: default ``Store()``, i.e. ``runs/`` in the working folder.
        executor: "local" = several processes; "inline" = one after the other in this process, for
            debugging and for reward terms that are defined in a notebook; "slurm" = a cluster.
        jobs: runs at once; default: one for each GPU, or as many as there are cores for, and on
            SLURM as it lets. Local processes share out the GPUs among them.
        threads: of each run; a different number may change results in the last digits.
        device: "auto", "cpu", "cuda", ...
        slurm: ``{"partition": "gpu", "gpus": 1, "minutes": 240}`` and other options of a SLURM
            job, see :func:`paperlib.experiments.slurm.make_executor`.
        report_to: who gets the metrics beside the run's folder, see :mod:`paperlib.rl.trackers`.

    Raises:
        UserError: unknown executor, checkpoints, report_to or SLURM option; a package or a cluster
            that is not there; a term that a process cannot import.
        RuntimeError: at the end, if runs failed; names them with the tails of their logs. The
            others are complete, and another call resumes the failed ones.
    """
    check_choice("executor", executor, ("local", "inline", "slurm"))
    check_choice("checkpoints", checkpoints, ("last", "all"))
    if jobs is not None and jobs < 1:
        raise UserError(f"jobs is {jobs}; it must be at least 1")
    if slurm and executor != "slurm":
        raise UserError(f"slurm has options, but executor is {executor!r}; make it 'slurm'")
    check_trackers(report_to)
    store = store or Store()
    runs = [store.run(config) for config in configs]
    unique = {run.folder: run for run in runs}
    todo = [
        Job(run, tuple(evaluations), checkpoints, threads, device, report_to)
        for run in unique.values()
    ]
    pending = [job for job in todo if not job.done()]
    if pending:
        if executor == "slurm":
            from paperlib.experiments.slurm import make_executor, make_tasks, run_all

            cluster = make_executor(store.root / "slurm", slurm or {}, jobs, threads)
            tasks = make_tasks(pending, slurm or {})
        with Progress(total=len(todo), done=len(todo) - len(pending)) as progress:
            if executor == "inline":
                failed = _inline(pending, progress)
            elif executor == "slurm":
                failed = run_all(tasks, cluster, progress)
            else:
                gpus = visible_gpus(device)
                limit = jobs or len(gpus) or max(1, available_cores() // threads)
                failed = _local(pending, limit, progress, gpus)
        if failed:
            tails = "\n\n".join(f"{j.run.folder}:\n{_log_tail(j.run)}" for j in failed)
            names = ", ".join(job.run.config.name for job in failed)
            raise RuntimeError(f"{len(failed)} of {len(todo)} runs failed: {names}\n\n{tails}")
    return runs


@contextmanager
def fixed_threads(threads: int) -> Iterator[None]:
    """Let torch, BLAS and OpenMP use ``threads`` threads: reductions depend on their number."""
    import torch
    from threadpoolctl import threadpool_limits

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with threadpool_limits(threads):
            yield
    finally:
        torch.set_num_threads(before)


def _inline(jobs: list[Job], progress: Progress) -> list[Job]:
    failed = []
    for job in jobs:
        progress.show([describe(job.run)])
        try:
            job.work()
        except Exception:
            failed.append(job)
            with open_log(job.run.folder) as log:
                log.write(traceback.format_exc().encode())
        progress.advance()
    return failed


def visible_gpus(device: str) -> list[str]:
    """The GPUs, in CUDA's words, that local processes share; none where ``device`` is a certain
    one or the runs are for the CPU."""
    import torch

    if device not in ("auto", "cuda") or not torch.cuda.is_available():
        return []
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    return named.split(",") if named else [str(i) for i in range(torch.cuda.device_count())]


def _local(jobs: list[Job], limit: int, progress: Progress, gpus: list[str]) -> list[Job]:
    waiting, failed = list(reversed(jobs)), []
    workers: list[Worker] = []
    try:
        while waiting or any(worker.job for worker in workers):
            for worker in workers:
                if waiting and worker.job is None:
                    worker.start(waiting.pop())
            while waiting and len(workers) < limit:
                taken = [worker.gpu for worker in workers]
                gpu = min(gpus, key=taken.count) if gpus else None
                workers.append(Worker(waiting[-1], gpu))
                workers[-1].start(waiting.pop())
            progress.show([describe(worker.job.run) for worker in workers if worker.job])
            time.sleep(POLL_SECONDS)
            for worker in [w for w in workers if w.job]:
                job, outcome = worker.job, worker.outcome()
                if outcome is None:
                    continue
                if outcome != "done":
                    failed.append(job)
                if outcome.startswith("ended"):
                    workers.remove(worker)
                    with open_log(job.run.folder) as log:
                        log.write(f"the process {outcome}\n".encode())
                progress.advance()
    finally:  # after Ctrl-C too: what is written so far resumes
        stop_all([worker.process for worker in workers])
    return failed


def describe(run: Run) -> str:
    """``DAPO s0 12/60``: method, seed and the last step in metrics.jsonl, for the progress bar."""
    config = run.config
    if (run.folder / "complete.json").exists():
        return f"{config.method} s{config.seed} evaluating"
    return f"{config.method} s{config.seed} {_last_step(run.folder)}/{config.max_steps}"


def _last_step(folder: Path) -> int:
    """Reads the end of the file only, since it is asked for twice a second."""
    import json

    try:
        with open(folder / "metrics.jsonl", "rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 16384))
            lines = file.read().split(b"\n")
        return int(json.loads(lines[-2])["step"])  # lines[-1] is empty or half-written
    except (OSError, IndexError, KeyError, ValueError):
        return 0


def _log_tail(run: Run) -> str:
    text = (run.folder / "log.txt").read_text(encoding="utf-8", errors="replace")
    return "\n".join(text.splitlines()[-LOG_LINES:])
