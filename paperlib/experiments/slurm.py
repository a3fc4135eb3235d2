"""A grid on a SLURM cluster, through submitit: one array job, in which each run is a task.

    grid(configs, executor="slurm", jobs=8,
         slurm={"partition": "gpu", "gpus": 1, "minutes": 240, "account": "mine"})

All nodes must see the run store, with working file locks, and SLURM must keep accounts (sacct), or
a task that was killed is waited for without end. A task that is preempted or out of time is queued
again and resumes. When the process that waits ends before the tasks, they are cancelled.
"""

import shlex
import shutil
import subprocess
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from paperlib.errors import UserError
from paperlib.experiments.jobs import LOGGED, Job, child_environment
from paperlib.experiments.progress import Progress
from paperlib.rl.config import RunConfig

LAUNCH_DIR = Path(__file__).parents[1] / "rl" / "launch"  # accelerate's configurations
POLL_SECONDS = 5.0  # a look at each run's folder
LOOK_SECONDS = 60  # between two questions to SLURM
# a task is over in these states; in some only if SLURM has not queued it again after a while
OVER = ("CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "OUT_OF_MEMORY", "REVOKED", "TIMEOUT")
RETURNING = ("BOOT_FAIL", "NODE_FAIL", "PREEMPTED")
SETTLE_SECONDS = 180
OWN = {"partition": None, "gpus": 1, "minutes": 240, "launch": None}
TIMEOUTS = 20  # how often a task that ran out of time is queued again
COPIES = "eight_gpus_ddp.yaml"  # for a recipe that needs no more than one GPU


def make_executor(
    folder: Path, options: Mapping[str, Any], at_once: int | None, threads: int
) -> Any:
    """submitit's SlurmExecutor, whose files go to ``folder``; ``at_once`` tasks run at a time.

    ``options``: ``partition`` (default: the cluster's), ``gpus`` of each run (1; 0 for CPU nodes;
    several for engine "trl"), ``minutes`` a task may take before it is queued again (240),
    ``launch`` (:func:`launch_file`), and submitit's own, such as account, qos, constraint, mem.
    """
    try:
        from submitit import SlurmExecutor
    except ImportError as error:
        raise UserError(
            "executor 'slurm' needs a package that is missing: pip install submitit"
        ) from error
    lacking = [name for name in ("sbatch", "srun", "sacct", "scancel") if not shutil.which(name)]
    if lacking:
        raise UserError(
            f"executor 'slurm' finds no {', '.join(lacking)} here: start it where SLURM is, or use "
            "executor 'local'"
        )
    own = {**OWN, **options}
    for name, least in (("gpus", 0), ("minutes", 1)):
        if not isinstance(own[name], int) or own[name] < least:
            raise UserError(f"slurm has {name} {own[name]!r}; valid: a number from {least}")
    environment = child_environment(threads).items()
    executor = SlurmExecutor(folder, max_num_timeout=TIMEOUTS)
    try:
        executor.update_parameters(**{
            "time": own["minutes"], "partition": own["partition"], "cpus_per_task": threads,
            "gpus_per_node": own["gpus"] or None, "array_parallelism": at_once or 256,
            "srun_args": [f"--cpus-per-task={threads}"],  # SLURM's srun does not take sbatch's
            "stderr_to_stdout": True,
            "setup": [f"export {name}={shlex.quote(value)}" for name, value in environment],
            "additional_parameters": {"requeue": True},  # where the cluster preempts by itself
            **{key: value for key, value in options.items() if key not in OWN},
            "job_name": f"paperlib-{uuid.uuid4().hex[:8]}",  # this grid's alone, to cancel it by
        })  # fmt: skip
    except ValueError as error:
        valid = ", ".join([*OWN, *sorted(executor._valid_parameters())])
        raise UserError(f"{str(error).splitlines()[0]}; valid in slurm: {valid}") from error
    return executor


def make_tasks(jobs: Sequence[Job], options: Mapping[str, Any]) -> Sequence[Job]:
    """The jobs as SLURM is to do them, by accelerate where they get several GPUs."""
    gpus = options.get("gpus", 1)
    if gpus <= 1:
        return jobs
    for name in (job.run.config.name for job in jobs if job.run.config.engine != "trl"):
        raise UserError(f"slurm has gpus {gpus}, but {name} is a run of engine 'ours', which uses "
                        "one; make it 1, or the runs' engine 'trl'")  # fmt: skip
    files = [launch_file(job.run.config, options.get("launch")) for job in jobs]
    return [replace(job, processes=gpus, launch=file)
            for job, file in zip(jobs, files, strict=True)]  # fmt: skip


def launch_file(config: RunConfig, name: str | None = None) -> Path:
    """accelerate's file for a run on several GPUs: a path, a name in ``paperlib/rl/launch``, or the
    recipe's. The number of processes in it does not count."""
    from paperlib.experiments.recipes import LAUNCH  # imports torch; a task itself does not

    of_recipe, _, gpus = LAUNCH[config.paper]
    name = name or (of_recipe if gpus > 1 else COPIES)
    for path in (Path(name).resolve(), LAUNCH_DIR / name):
        if path.is_file():
            return path
    valid = ", ".join(sorted(path.name for path in LAUNCH_DIR.glob("*.yaml")))
    raise UserError(f"launch names {name!r}, which is no file; valid: a path, or {valid}")


def run_queued(
    jobs: Sequence[Job], folder: Path, options: Mapping[str, Any], at_once: int | None,
    progress: Progress,
) -> list[Job]:
    """Have SLURM do the jobs and wait for them; those that failed, whose runs' logs tell why."""
    executor = make_executor(folder, options, at_once, jobs[0].threads)
    queued = make_tasks(jobs, options)
    from submitit.helpers import clean_env

    # A shell waits for a line that is only written at the good end. Its input also ends when this
    # process is killed, or is a notebook's kernel that is restarted, and cannot clean up.
    guard = subprocess.Popen(
        ["sh", "-c", 'read done || exec scancel --name="$0"', executor.parameters["job_name"]],
        stdin=subprocess.PIPE, start_new_session=True,  # out of reach of the terminal's Ctrl-C
    )  # fmt: skip
    try:
        try:
            with clean_env():  # what a job that a notebook itself runs in has set
                tasks = executor.submit_array(queued)
        except Exception as error:  # submitit's own kind, or the system's
            raise UserError(f"SLURM did not take the jobs: {error}") from error
        failed = _wait(dict(zip(tasks, queued, strict=True)), progress)
        guard.stdin.write(b"done\n")
    finally:
        guard.stdin.close()
        guard.wait()
    return failed


def _wait(waiting: dict[Any, Job], progress: Progress) -> list[Job]:
    """Wait for SLURM's tasks, by task; the jobs that failed."""
    failed = []
    _watch(waiting)
    while waiting:  # one that is worked on has a lock.json
        running = [job for job in waiting.values() if (job.run.folder / "lock.json").exists()]
        progress.show(running, queued=len(waiting) - len(running))
        time.sleep(POLL_SECONDS)
        for task in [t for t in waiting if t.done()]:
            job, error = waiting.pop(task), task.exception()
            failed += [job] if error else []
            if error and LOGGED not in str(error):  # killed, or never started
                job.note(f"{error}\nSLURM job {task.job_id}: {task.state}")
                if task.state in RETURNING:  # it might come back
                    task.cancel(check=False)
            progress.advance()
    return failed


def _watch(tasks: Iterable[Any]) -> None:
    """Have SLURM's tasks be over when SLURM does not go on with them. submitit waits for a task
    that was preempted for good, and gives up one that is suspended or queued again."""
    from submitit.slurm.slurm import SlurmInfoWatcher, SlurmJob

    class Watcher(SlurmInfoWatcher):
        def __init__(self) -> None:
            super().__init__(delay_s=LOOK_SECONDS)
            self._left: dict[str, float] = {}  # when a job was first found in a RETURNING state

        def is_done(self, job_id: str, mode: str = "standard") -> bool:
            state, look = self.get_state(job_id, mode).split()[0], self._last_status_check
            if state in RETURNING:
                return look - self._left.setdefault(job_id, look) >= SETTLE_SECONDS
            self._left.pop(job_id, None)
            return state in OVER

    watcher = Watcher()
    for task in tasks:
        if isinstance(task, SlurmJob):
            task.watcher = watcher
            watcher.register_job(task.job_id)
