"""A SLURM of one machine for tests: ``fake_slurm.py <command> <arguments>`` is sbatch, srun, ...

State lies in $FAKE_SLURM: ``calls`` (a line a command), ``<job>.state``, ``<job>.pid``, ``groups``,
``killed`` (from a test: the states of a task whose process fails, each until it was looked at).
"""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HOME = Path(os.environ["FAKE_SLURM"])


def sbatch(script):
    """Starts the tasks in the background, as many at once as the array allows."""
    if (HOME / "refuse").exists():
        sys.exit("sbatch: error: invalid partition specified: nowhere")
    text = Path(script).read_text()
    number = 100 + len(list(HOME.glob("script*")))
    (HOME / f"script{number}").write_text(text)  # submitit moves its own as soon as it is taken
    names, limit = [str(number)], "1"
    if array := re.search(r"--array=0-(\d+)%(\d+)", text):
        names, limit = [f"{number}_{k}" for k in range(int(array[1]) + 1)], array[2]
    for name in names:
        set_state(HOME / f"{name}.state", "PENDING")
    print(f"Submitted batch job {number}", flush=True)
    null = {name: subprocess.DEVNULL for name in ("stdin", "stdout", "stderr")}
    command = [sys.executable, "-S", __file__, "work", limit, *names]
    note("groups", str(subprocess.Popen(command, start_new_session=True, **null).pid))


def work(limit, *names):
    with ThreadPoolExecutor(int(limit)) as pool:
        list(pool.map(run_task, names))


def run_task(name):
    state, pid = HOME / f"{name}.state", HOME / f"{name}.pid"
    job, _, index = name.partition("_")
    names = {"SLURM_JOB_ID": job, "SLURM_NTASKS": "1", "SLURM_JOB_NUM_NODES": "1"}
    if index:
        names |= {"SLURM_ARRAY_JOB_ID": job, "SLURM_ARRAY_TASK_ID": index}
    while state.read_text() in ("PENDING", "REQUEUED"):
        set_state(state, "RUNNING")
        task = subprocess.Popen(
            ["bash", HOME / f"script{job}"], env={**os.environ, **names}, start_new_session=True
        )
        pid.write_text(str(task.pid))
        note("groups", str(task.pid))
        status = task.wait()
        if state.read_text() == "RUNNING":
            killed = (HOME / "killed").read_text() if (HOME / "killed").exists() else "FAILED"
            *passing, last = killed.split() if status else ["COMPLETED"]
            for following in passing:
                set_state(state, following)
                looks = (HOME / "calls").read_text().count("sacct") + 3
                while (HOME / "calls").read_text().count("sacct") < looks:
                    time.sleep(0.05)
            set_state(state, last)


def srun(*arguments):
    options = [a for a in arguments[: arguments.index("-u") - 1] if a.startswith("-")]
    assert "--unbuffered" in options and "--cpus-per-task=1" in options, options
    output = arguments[arguments.index("--output") + 1]
    for letter, value in (
        ("%A", os.environ.get("SLURM_ARRAY_JOB_ID", "")), ("%j", os.environ["SLURM_JOB_ID"]),
        ("%a", os.environ.get("SLURM_ARRAY_TASK_ID", "")), ("%t", "0"),
    ):
        output = output.replace(letter, value)
    with open(output, "ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    command = arguments[arguments.index("-u") - 1 :]
    os.execvp(command[0], command)


def sacct(*_):
    print("JobID|State|NodeList")
    for path in HOME.glob("*.state"):
        print(f"{path.stem}|{path.read_text()}|here")


def scancel(option):
    jobs = [option] + [
        path.name.removeprefix("script") for path in HOME.glob("script*")
        if option.replace("--name=", "--job-name=") in path.read_text().split()
    ]
    for path in HOME.glob("*.state"):
        named = {path.stem, path.stem.split("_")[0]} & set(jobs)
        if named and path.read_text() in ("PENDING", "RUNNING"):
            set_state(path, "CANCELLED")
            if path.with_suffix(".pid").exists():
                os.killpg(int(path.with_suffix(".pid").read_text()), signal.SIGKILL)


def scontrol(_, name):
    set_state(HOME / f"{name}.state", "REQUEUED")


def set_state(path, state):
    """At once: a reader must not find the file empty."""
    scratch = path.with_suffix(f".{os.getpid()}-{threading.get_ident()}")
    scratch.write_text(state)
    scratch.replace(path)


def note(name, line):
    with (HOME / name).open("a") as file:
        file.write(line + "\n")


if __name__ == "__main__":
    note("calls", " ".join(sys.argv[1:4]))
    globals()[sys.argv[1]](*sys.argv[2:])
