"""One job in several processes of this machine: accelerate starts them, TRL trains in all of them.

What our own command line does under ``accelerate launch`` for a recipe, this does for any job of a
grid. The first process alone writes the run's folder and evaluates.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from paperlib.errors import UserError
from paperlib.experiments.recipes import LAUNCH
from paperlib.processes import stop_all
from paperlib.rl.config import RunConfig
from paperlib.rl.trl_settings import LAUNCH_DIR

if TYPE_CHECKING:
    from paperlib.experiments.grid import Job

GRACE_SECONDS = 40.0  # for the launcher to end its processes, which it gives 30 s
COPIES = "eight_gpus_ddp.yaml"  # for a recipe that needs no more than one GPU


def launch_file(config: RunConfig, name: str | None = None) -> Path:
    """accelerate's file for a run on several GPUs: a path, a name in ``paperlib/rl/launch``, or by
    default what the run's recipe says. The number of processes in it does not count.

    Raises:
        UserError: there is no such file.
    """
    if name is None:
        of_recipe, _, gpus = LAUNCH[config.paper]
        name = of_recipe if gpus > 1 else COPIES
    for path in (Path(name).resolve(), LAUNCH_DIR / name):
        if path.is_file():
            return path
    valid = ", ".join(sorted(path.name for path in LAUNCH_DIR.glob("*.yaml")))
    raise UserError(f"launch names {name!r}, which is no file; valid: a path, or {valid}")


def launched(job: Job, processes: int, file: Path) -> None:
    """Do the job in so many processes, and wait for them.

    Raises:
        subprocess.CalledProcessError: one of them failed; what it printed is above.
    """
    import cloudpickle  # comes with submitit: a term of a notebook goes by its code

    with tempfile.TemporaryDirectory() as scratch:
        pickled = Path(scratch) / "job.pkl"
        pickled.write_bytes(cloudpickle.dumps(job))
        launcher = subprocess.Popen(
            [sys.executable, "-m", "accelerate.commands.launch", "--config_file", str(file),
             "--num_processes", str(processes), "--main_process_port", "0",  # any that is free
             "-m", __name__, str(pickled), *(["--vllm"] if "vllm" in file.name else [])]
        )  # fmt: skip
        try:
            launcher.wait()
        finally:
            stop_all([launcher], GRACE_SECONDS)
    if launcher.returncode:
        raise subprocess.CalledProcessError(launcher.returncode, launcher.args)


def main(pickled: str, *flags: str) -> None:
    """In each process: do the job that the launcher wrote."""
    job: Job = pickle.loads(Path(pickled).read_bytes())
    job.work(**({"vllm": True} if "--vllm" in flags else {}))


if __name__ == "__main__":
    main(*sys.argv[1:])
