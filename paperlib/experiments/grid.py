"""Many runs at once: train what is missing, then evaluate what is not evaluated yet.

    runs = grid([recipe("meds", m, "tiny", s) for m in ("DAPO", "MEDS") for s in (0, 1)],
                evaluations=[settings])

Every run computes with the same number of threads, so that executor and number of jobs never change
a result. What is complete costs a look at the disk.
"""

import os
import tempfile
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from paperlib.environment import available_cores
from paperlib.errors import UserError, check_choice
from paperlib.evaluation.settings import EvalSettings
from paperlib.experiments.jobs import Job
from paperlib.experiments.progress import Progress
from paperlib.experiments.store import Run, Store
from paperlib.processes import run_all
from paperlib.rl.config import RunConfig
from paperlib.rl.logs import check_trackers


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
        evaluations: computed for the chosen ``checkpoints`` ("last",
            "all" or "chosen", :meth:`paperlib.experiments.jobs.Job.checkpoints`) of every run.
        store: default ``Store()``, i.e. ``runs/`` in the working folder.
        executor: "local" = several processes, which share out the GPUs; "inline" = one run after
            the other in this process; "slurm" = a cluster, with the options ``slurm`` of
            :func:`paperlib.experiments.slurm.make_executor`.
        jobs: runs at once; default: one for each GPU, or as many as there are cores for, and on
            SLURM as it lets.
        threads: of each run; a different number may change results in the last digits.
        report_to: who gets the metrics beside the run's folder, see :mod:`paperlib.rl.logs`.

    A run that fails is a RuntimeError at the end, with the tail of its log; the others are complete
    by then, and another call resumes it.
    """
    check_choice("executor", executor, ("local", "inline", "slurm"))
    check_choice("checkpoints", checkpoints, ("last", "all", "chosen"))
    if jobs is not None and jobs < 1:
        raise UserError(f"jobs is {jobs}; it must be at least 1")
    if slurm and executor != "slurm":
        raise UserError(f"slurm has options, but executor is {executor!r}; make it 'slurm'")
    check_trackers(report_to)
    store = store or Store()
    runs = [store.run(config) for config in configs]
    todo = [Job(run, tuple(evaluations), checkpoints, threads, device, report_to)
            for run in {run.folder: run for run in runs}.values()]  # fmt: skip
    pending = [job for job in todo if not job.done()]
    if not pending:
        return runs
    progress = Progress(total=len(todo), done=len(todo) - len(pending))
    with progress.bar:
        if executor == "inline":
            failed = _inline(pending, progress)
        elif executor == "slurm":
            from paperlib.experiments.slurm import run_queued

            failed = run_queued(pending, store.root / "slurm", slurm or {}, jobs, progress)
        else:
            failed = _local(pending, jobs, progress)
    if failed:
        names = ", ".join(job.run.config.name for job in failed)
        text = [f"{len(failed)} of {len(todo)} runs failed: {names}"]
        raise RuntimeError("\n\n".join(text + [job.log_tail() for job in failed]))
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


def visible_gpus(device: str) -> list[str]:
    """The GPUs, in CUDA's words, that local processes share; none for a certain one or the CPU."""
    import torch

    if device not in ("auto", "cuda") or not torch.cuda.is_available():
        return []
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    return named.split(",") if named else [str(i) for i in range(torch.cuda.device_count())]


def _inline(jobs: list[Job], progress: Progress) -> list[Job]:
    failed = []
    for job in jobs:
        progress.show([job])
        try:
            with fixed_threads(job.threads):
                job.work()
        except Exception:
            failed.append(job)
            job.note(traceback.format_exc())
        progress.advance()
    return failed


def _local(jobs: list[Job], limit: int | None, progress: Progress) -> list[Job]:
    gpus = visible_gpus(jobs[0].device)
    limit = limit or len(gpus) or max(1, available_cores() // jobs[0].threads)

    def ended(job: Job, status: int) -> None:
        job.ended(status)
        progress.advance()

    places = [gpus[i % len(gpus)] if gpus else None for i in range(limit)]
    with tempfile.TemporaryDirectory(prefix="paperlib-") as scratch:
        return run_all(jobs, places, lambda job, gpu: job.start(scratch, gpu), ended, progress.show)
