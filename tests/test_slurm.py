"""A grid on a SLURM that is a script: what is submitted, and whole grids through submitit."""

import _thread
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from test_grid import STAND_IN, alive, wait_for, work_beside_another_paperlib
from test_store import SETTINGS, make_config

from paperlib.errors import UserError
from paperlib.experiments.grid import Job, grid
from paperlib.experiments.progress import Progress
from paperlib.experiments.store import Store
from paperlib.experiments.workers import child_environment
from paperlib.files import read_json

submitit = pytest.importorskip("submitit", reason="the extra 'slurm' is not installed")

from paperlib.experiments import slurm as module  # noqa: E402

# So much of torch and pandas as a job with the stand-in asks for: the real ones take seconds.
LIGHT = """
pandas = sys.modules["pandas"] = types.ModuleType("pandas")
pandas.DataFrame = type("DataFrame", (dict,), {"to_parquet": lambda rows, path: None})
torch = sys.modules["torch"] = types.ModuleType("torch")
torch.get_num_threads = lambda: 1
torch.set_num_threads = lambda threads: None
torch.device = lambda name: types.SimpleNamespace(type=name, __str__=lambda self: name)
"""
COMMANDS = ("sbatch", "srun", "sacct", "scancel", "scontrol")


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch) -> Path:
    """The folder of a SLURM whose processes train with the stand-in."""
    home, bin_folder, site = (tmp_path / name for name in ("slurm", "bin", "site"))
    for folder in (home, bin_folder, site):
        folder.mkdir()
    script = Path(__file__).with_name("fake_slurm.py")
    for name in COMMANDS:
        (bin_folder / name).write_text(
            f'#!/bin/sh\nexec "{sys.executable}" -S "{script}" {name} "$@"\n'
        )
        (bin_folder / name).chmod(0o755)
    (site / "sitecustomize.py").write_text(STAND_IN + LIGHT)
    work_beside_another_paperlib(tmp_path, monkeypatch)
    monkeypatch.syspath_prepend(site)
    monkeypatch.setenv("PATH", f"{bin_folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_SLURM", str(home))
    monkeypatch.setattr(module, "POLL_SECONDS", 0.05)
    monkeypatch.setattr(submitit.SlurmJob, "_results_timeout_s", 0)
    yield home
    if (home / "groups").exists():
        for group in (home / "groups").read_text().split():
            try:
                os.killpg(int(group), signal.SIGKILL)
            except ProcessLookupError:
                pass


def wait_for_end(pid):
    """A process that was killed takes a moment to be gone."""
    deadline = time.monotonic() + 20
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not alive(pid)


def options(store, **more):
    return {"store": store, "executor": "slurm", "device": "cpu", **more}


def from_a_notebook():
    """A reward term of a class that no other process can import."""
    scope = {"__name__": "__main__"}
    exec(
        "from dataclasses import dataclass\n@dataclass(frozen=True)\n"
        "class Mine:\n    weight: float = 2.0\n", scope,
    )  # fmt: skip
    return scope["Mine"]()


def test_a_grid_of_which_one_run_fails_and_one_is_killed(cluster, tmp_path):
    store = Store(tmp_path / "runs")
    mine = replace(make_config(3), terms=(from_a_notebook(),))
    with pytest.raises(RuntimeError) as error:
        grid(
            [make_config(13), make_config(9), make_config(0), mine], [SETTINGS],
            **options(store, jobs=2, slurm={"partition": "gpu", "gpus": 1, "account": "mine"}),
        )
    text = str(error.value)
    assert text.startswith("2 of 4 runs failed: ")
    assert "ValueError: unlucky seed" in text and "SLURM job 100_1: FAILED" in text
    assert "submitit" not in text.split("unlucky seed")[1].split("runs/")[0]  # only the run's own
    for config in (make_config(0), mine):
        run = store.run(config)
        assert run.status() == "complete" and run.evaluation_path(4, SETTINGS).exists()
        assert "trained in" in (run.folder / "log.txt").read_text()
    assert read_json(store.run(mine).folder / "config.json")["terms"][0]["weight"] == 2.0

    lines = (cluster / "script100").read_text().splitlines()
    for line in ("--array=0-3%2", "--partition=gpu", "--gpus-per-node=1", "--account=mine",
                 "--time=240", "--cpus-per-task=1", "--requeue", "--signal=USR2@90"):
        assert f"#SBATCH {line}" in lines, line
    assert "export OMP_NUM_THREADS=1" in lines
    assert "-m submitit.core._submit" in next(line for line in lines if line.startswith("srun"))
    calls = (cluster / "calls").read_text().splitlines()
    assert sum(call.startswith("sbatch") for call in calls) == 1  # one array job
    assert not any(call.startswith("scancel") for call in calls)

    runs = grid([make_config(0), mine], [SETTINGS], **options(store))
    assert [run.status() for run in runs] == ["complete"] * 2
    assert (cluster / "calls").read_text().splitlines() == calls  # nothing was submitted


@pytest.mark.parametrize("kind", ["slurm", "local"])
def test_a_preempted_job_is_queued_again_and_resumes(cluster, tmp_path, monkeypatch, kind):
    """By submitit's executor for SLURM, and by its own for one machine."""
    store = Store(tmp_path / "runs")
    run = store.run(make_config(60))
    pids = []

    def preempt():
        wait_for(run.folder / "started")
        pids.append(read_json(run.folder / "lock.json")["pid"])
        os.kill(pids[0], signal.SIGUSR2)

    thread = threading.Thread(target=preempt)
    thread.start()
    if kind == "slurm":
        grid([run.config], **options(store))
        assert "scontrol requeue 100" in (cluster / "calls").read_text()
    else:
        for name, value in child_environment(1).items():
            monkeypatch.setenv(name, value)
        executor = submitit.LocalExecutor(tmp_path / "local")
        executor.update_parameters(job_name="any")
        job = Job(run, (), "last", 1, "cpu")
        assert module.run_all([module.Task(job)], executor, Progress(total=1, done=0)) == []
    thread.join()
    assert run.status() == "complete"
    log = (run.folder / "log.txt").read_text()
    assert log.count("trained in") == 1 and f"trained in {pids[0]}" not in log


@pytest.mark.parametrize(("states", "goes_on"), [
    ("PREEMPTED", False), ("NODE_FAIL", False), ("OUT_OF_MEMORY", False), ("TIMEOUT", False),
    ("PREEMPTED PENDING", True), ("NODE_FAIL PENDING", True), ("SUSPENDED PENDING", True),
])  # fmt: skip
def test_a_task_is_over_when_slurm_does_not_go_on_with_it(
    cluster, tmp_path, monkeypatch, states, goes_on
):
    store = Store(tmp_path / "runs")
    configs = [make_config(60), make_config(0)]
    runs = [store.run(config) for config in configs]
    (cluster / "killed").write_text(states)
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.1)
    monkeypatch.setattr(module, "SETTLE_SECONDS", 3 if goes_on else 0.5)

    def kill():
        wait_for(runs[0].folder / "started")
        os.kill(read_json(runs[0].folder / "lock.json")["pid"], signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        if goes_on:
            grid(configs, **options(store))
        else:
            with pytest.raises(RuntimeError, match=f"(?s)1 of 2 runs failed.*100_0: {states}"):
                grid(configs, **options(store))
    finally:
        thread.join()
    assert [run.status() for run in runs] == ["complete" if goes_on else "partial", "complete"]
    calls = (cluster / "calls").read_text().splitlines()
    cancelled = [call for call in calls if call.startswith("scancel")]  # it might come back
    assert cancelled == (["scancel 100_0"] if states in ("PREEMPTED", "NODE_FAIL") else [])


def test_ctrl_c_cancels_what_runs_and_what_waits(cluster, tmp_path, monkeypatch):
    store = Store(tmp_path / "runs")
    configs = [make_config(60), make_config(0)]
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    shown = []
    monkeypatch.setattr(Progress, "show", lambda self, texts: shown.append(texts))

    def interrupt():
        wait_for(store.run(configs[0]).folder / "started")
        while shown[-1] != ["1 queued", "DAPO s60 0/4"]:
            time.sleep(0.02)
        _thread.interrupt_main()

    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            grid(configs, **options(store, jobs=1))
    finally:
        signal.signal(signal.SIGINT, before)
        thread.join()
    states = {path.stem: path.read_text() for path in cluster.glob("*.state")}
    assert states == {"100_0": "CANCELLED", "100_1": "CANCELLED"}
    wait_for_end(read_json(store.run(configs[0]).folder / "lock.json")["pid"])
    assert [store.run(c).status() for c in configs] == ["partial", "missing"]
    grid(configs, **options(store))
    assert [store.run(c).status() for c in configs] == ["complete"] * 2


def test_a_killed_grid_leaves_nothing_in_the_queue(cluster, tmp_path):
    """As when a notebook's kernel is restarted: it has no time to clean up."""
    store = Store(tmp_path / "runs")
    folder = store.run(make_config(60)).folder
    code = (
        "from paperlib.experiments.grid import grid; from test_store import *;"
        "grid([make_config(60), make_config(0)], device='cpu', executor='slurm', jobs=1,"
        f"store=Store({str(store.root)!r}))"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", code], env={**os.environ, **child_environment(1)}
    )
    wait_for(folder / "started")
    pid = read_json(folder / "lock.json")["pid"]
    parent.kill()
    parent.wait()
    wait_for_end(pid)
    states = {path.stem: path.read_text() for path in cluster.glob("*.state")}
    assert states == {"100_0": "CANCELLED", "100_1": "CANCELLED"}


def test_what_slurm_does_not_take_is_quoted(cluster, tmp_path):
    (cluster / "refuse").touch()
    with pytest.raises(UserError, match="SLURM did not take the jobs.*invalid partition"):
        grid([make_config()], **options(Store(tmp_path / "runs")))


@pytest.mark.parametrize("given, message", [
    ({"minute": 3}, "'minute'.*valid in slurm: partition, gpus, minutes, launch, account"),
    ({"gpus": -1}, "gpus -1; valid: a number from 0"),
    ({"minutes": "4:00"}, "minutes '4:00'; valid: a number from 1"),
])  # fmt: skip
def test_bad_options(cluster, tmp_path, given, message):
    with pytest.raises(UserError, match=message):
        grid([make_config()], **options(Store(tmp_path / "runs"), slurm=given))
    assert not (cluster / "calls").exists() and not (tmp_path / "runs").exists()


def test_cpu_nodes_are_asked_for_no_gpu(cluster, tmp_path):
    executor = module.make_executor(tmp_path, {"gpus": 0, "minutes": 5}, None, 3)
    text = executor._make_submission_file_text("command", "uid")
    assert "gpu" not in text and "partition" not in text
    assert "--time=5" in text and "--cpus-per-task=3" in text and "OMP_NUM_THREADS=3" in text


def test_what_is_missing_is_named(tmp_path, monkeypatch):
    store = Store(tmp_path / "runs")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="no sbatch, srun, sacct, scancel here"):
        grid([make_config()], **options(store))
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    with pytest.raises(UserError, match="pip install submitit"):
        grid([make_config()], **options(store))
    assert not store.root.exists()
