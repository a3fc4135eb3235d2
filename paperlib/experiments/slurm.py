"""A grid on a SLURM cluster, through submitit: one array job, in which each run is a task.

    grid(configs, executor="slurm", jobs=8,
         slurm={"partition": "gpu", "gpus": 1, "minutes": 240, "account": "mine"})

With more than one GPU a run of engine "trl" is started by accelerate in as many processes. All
nodes must see the run store, with working file locks, and SLURM must keep accounts (sacct), or a
task that was killed is waited for without end. A task that is preempted or out of time is queued
again and goes on from its run's newest checkpoint. When the process that waits for the tasks ends
before they do, by Ctrl-C or by a kill, they are cancelled.
"""

import shlex
import shutil
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paperlib.errors import UserError
from paperlib.experiments.jobs import Job, child_environment
from paperlib.experiments.progress import Progress
from paperlib.processes import stop_all
from paperlib.rl.config import RunConfig

LAUNCH_DIR = Path(__file__).parents[1] / "rl" / "launch"  # accelerate's configurations
POLL_SECONDS = 5.0  # a look at each run's folder
LOOK_SECONDS = 60  # between two questions to SLURM
GRACE_SECONDS = 40.0  # for accelerate to end its processes, which it gives 30 s
# a task is over in these states; in some only if SLURM has not queued it again after a while
OVER = ("CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "OUT_OF_MEMORY", "REVOKED", "TIMEOUT")
RETURNING = ("BOOT_FAIL", "NODE_FAIL", "PREEMPTED")
SETTLE_SECONDS = 180
OWN = {"partition": None, "gpus": 1, "minutes": 240, "launch": None}
TIMEOUTS = 20  # how often a task that ran out of time is queued again
LOGGED = "the run failed, and its log.txt tells why"
COPIES = "eight_gpus_ddp.yaml"  # for a recipe that needs no more than one GPU


@dataclass(frozen=True)
class Task:
    """What SLURM runs for one job of the grid; in several processes, with an accelerate file."""

    job: Job
    processes: int = 1
    launch: Path | None = None

    def __call__(self) -> None:
        with tempfile.TemporaryDirectory(prefix="paperlib-") as scratch:
            process = self.job.start(Path(scratch), None, self.processes, self.launch)
            try:
                process.wait()
            finally:
                stop_all([process], GRACE_SECONDS)
        if not self.job.succeeded(process):
            raise RuntimeError(LOGGED)

    def checkpoint(self) -> Any:
        """What submitit queues when the task must stop: the same, which resumes."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)


def make_executor(
    folder: Path, options: Mapping[str, Any], at_once: int | None, threads: int
) -> Any:
    """submitit's SlurmExecutor, whose files go to ``folder``; ``at_once`` tasks run at a time.

    ``options``: ``partition`` (default: the cluster's), ``gpus`` of each run (1; 0 for CPU nodes),
    ``minutes`` a task may take before it is queued again (240), ``launch`` (:func:`launch_file`),
    and submitit's own, such as account, qos, constraint, mem.
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
    wanted = {
        "time": own["minutes"], "partition": own["partition"], "cpus_per_task": threads,
        "gpus_per_node": own["gpus"] or None, "array_parallelism": at_once or 256,
        "srun_args": [f"--cpus-per-task={threads}"],  # SLURM's srun does not take sbatch's
        "stderr_to_stdout": True,
        "setup": [f"export {name}={shlex.quote(value)}" for name, value in environment],
        "additional_parameters": {"requeue": True},  # where the cluster preempts by itself
        **{key: value for key, value in options.items() if key not in OWN},
        "job_name": f"paperlib-{uuid.uuid4().hex[:8]}",  # this grid's alone, to cancel it by
    }  # fmt: skip
    executor = SlurmExecutor(folder, max_num_timeout=TIMEOUTS)
    try:
        executor.update_parameters(**wanted)
    except ValueError as error:
        valid = ", ".join([*OWN, *sorted(executor._valid_parameters())])
        raise UserError(f"{str(error).splitlines()[0]}; valid in slurm: {valid}") from error
    return executor


def make_tasks(jobs: Sequence[Job], options: Mapping[str, Any]) -> list[Task]:
    """The tasks of the jobs, one each; of several GPUs only for engine "trl"."""
    own = {**OWN, **options}
    if own["gpus"] <= 1:
        return [Task(job) for job in jobs]
    for name in (job.run.config.name for job in jobs if job.run.config.engine != "trl"):
        raise UserError(f"slurm has gpus {own['gpus']}, but {name} is a run of engine 'ours', "
                        "which uses one; make it 1, or the runs' engine 'trl'")  # fmt: skip
    return [Task(job, own["gpus"], launch_file(job.run.config, own["launch"])) for job in jobs]


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


def run_all(queued: list[Task], executor: Any, progress: Progress) -> list[Job]:
    """Submit the tasks and wait for them; the jobs that failed, whose runs' logs tell why."""
    from submitit.helpers import clean_env

    failed = []
    with _cancelled_unless_done(executor.parameters["job_name"]):
        try:
            with clean_env():  # what a job that a notebook itself runs in has set
                tasks = executor.submit_array(queued)
        except Exception as error:  # submitit's own kind, or the system's
            raise UserError(f"SLURM did not take the jobs: {error}") from error
        _watch(tasks)
        waiting = dict(zip(tasks, (task.job for task in queued), strict=True))
        while waiting:
            runs = [job.run for job in waiting.values()]  # one that is worked on has a lock.json
            running = [run for run in runs if (run.folder / "lock.json").exists()]
            progress.show(running, queued=len(runs) - len(running))
            time.sleep(POLL_SECONDS)
            for task in [t for t in waiting if t.done()]:
                job = waiting.pop(task)
                error = task.exception()
                failed += [job] if error else []
                if error and LOGGED not in str(error):  # killed, or never started
                    job.note(f"{error}\nSLURM job {task.job_id}: {task.state}")
                    if task.state in RETURNING:  # it might come back
                        task.cancel(check=False)
                progress.advance()
    return failed


def _watch(tasks: list[Any]) -> None:
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


@contextmanager
def _cancelled_unless_done(name: str) -> Iterator[None]:
    """Cancel all jobs of that name if the block, or this process, ends in any way but well.

    A shell waits for a line that is only written at the good end: its input also ends when this
    process is killed, or is a notebook's kernel that is restarted, and cannot clean up.
    """
    guard = subprocess.Popen(
        ["sh", "-c", 'read done || exec scancel --name="$0"', name],
        stdin=subprocess.PIPE, start_new_session=True,  # out of reach of the terminal's Ctrl-C
    )
    try:
        yield
        guard.stdin.write(b"done\n")
    finally:
        guard.stdin.close()
        guard.wait()
