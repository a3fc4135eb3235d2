"""A grid on a SLURM that is a script: what is submitted, and whole grids through submitit."""

import os
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
from test_grid import (
    STAND_IN,
    alive,
    in_another_process,
    wait_for,
    wait_for_end,
    work_beside_another_paperlib,
)
from test_store import SETTINGS, make_config

from paperlib.errors import UserError
from paperlib.experiments.grid import grid
from paperlib.experiments.jobs import Job
from paperlib.experiments.progress import Progress, describe
from paperlib.experiments.recipes import eval_settings, recipe
from paperlib.experiments.store import Store
from paperlib.files import read_json
from paperlib.tasks.tiny import MODEL_DIR

submitit = pytest.importorskip("submitit", reason="the extra 'slurm' is not installed")

from paperlib.experiments import slurm as module  # noqa: E402

# So much of torch and pandas as a job with the stand-in asks for: the real ones take seconds.
LIGHT = """
pandas = sys.modules["pandas"] = types.ModuleType("pandas")
pandas.DataFrame = type("DataFrame", (dict,), {"to_parquet": lambda rows, path: None})
torch = sys.modules["torch"] = types.ModuleType("torch")
torch.get_num_threads = lambda: 1
torch.set_num_threads = lambda threads: None
class device:
    def __init__(self, name): self.type = name
    def __str__(self): return self.type
torch.device = device
pandas.Series = torch.Tensor = object
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


def task_of(run) -> int:
    """The process that SLURM started for the run, above the one that works."""
    pid = read_json(run.folder / "lock.json")["pid"]
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def options(store, **more):
    return {"store": store, "executor": "slurm", "device": "cpu", **more}


@contextmanager
def interrupted_when(ready):
    """Ctrl-C in the block, once ``ready()`` returns."""
    main = threading.main_thread().ident
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background ignores it
    with ThreadPoolExecutor() as pool, pytest.raises(KeyboardInterrupt):
        pool.submit(lambda: (ready(), signal.pthread_kill(main, signal.SIGINT)))
        yield


def all_cancelled(cluster) -> bool:
    states = {path.stem: path.read_text() for path in cluster.glob("*.state")}
    return states == {"100_0": "CANCELLED", "100_1": "CANCELLED"}


def test_a_grid_of_which_one_run_fails_and_one_is_killed(cluster, tmp_path):
    store = Store(tmp_path / "runs")
    with pytest.raises(RuntimeError) as error:
        grid(
            [make_config(s) for s in (13, 9, 0)], [SETTINGS],
            **options(store, jobs=2, slurm={"partition": "gpu", "gpus": 1, "account": "mine"}),
        )
    text = str(error.value)
    assert text.startswith("2 of 3 runs failed: ") and "submitit" not in text
    assert "ValueError: unlucky seed" in text and "the process ended with status 9" in text
    run = store.run(make_config(0))
    assert run.status() == "complete" and run.evaluation_path(4, SETTINGS).exists()
    assert "trained in" in (run.folder / "log.txt").read_text()

    lines = (cluster / "script100").read_text().splitlines()
    for line in ("--array=0-2%2", "--partition=gpu", "--gpus-per-node=1", "--account=mine",
                 "--time=240", "--cpus-per-task=1", "--requeue", "--signal=USR2@90"):
        assert f"#SBATCH {line}" in lines, line
    assert "export OMP_NUM_THREADS=1" in lines
    assert "-m submitit.core._submit" in next(line for line in lines if line.startswith("srun"))
    calls = (cluster / "calls").read_text().splitlines()
    assert sum(call.startswith("sbatch") for call in calls) == 1  # one array job
    assert not any(call.startswith("scancel") for call in calls)

    grid([make_config(0)], [SETTINGS], **options(store))
    assert (cluster / "calls").read_text().splitlines() == calls  # nothing was submitted


def test_a_preempted_job_is_queued_again_and_resumes(cluster, tmp_path):
    store = Store(tmp_path / "runs")
    run = store.run(make_config(60))
    pids = []

    def preempt():
        wait_for(run.folder / "started")
        pids.append(read_json(run.folder / "lock.json")["pid"])
        for pid in (pids[0], task_of(run)):  # SLURM tells all processes of a task
            os.kill(pid, signal.SIGUSR2)

    with ThreadPoolExecutor() as pool:
        pool.submit(preempt)
        grid([run.config], **options(store))
    assert "scontrol requeue 100" in (cluster / "calls").read_text()
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
        os.killpg(os.getpgid(task_of(runs[0])), signal.SIGKILL)

    expected = nullcontext() if goes_on else pytest.raises(
        RuntimeError, match=f"(?s)1 of 2 runs failed.*100_0: {states}")  # fmt: skip
    with ThreadPoolExecutor() as pool, expected:
        pool.submit(kill)
        grid(configs, **options(store))
    assert [run.status() for run in runs] == ["complete" if goes_on else "partial", "complete"]
    calls = (cluster / "calls").read_text().splitlines()
    cancelled = [call for call in calls if call.startswith("scancel")]  # it might come back
    assert cancelled == (["scancel 100_0"] if states in ("PREEMPTED", "NODE_FAIL") else [])


def test_ctrl_c_cancels_what_runs_and_what_waits(cluster, tmp_path, monkeypatch):
    store = Store(tmp_path / "runs")
    configs = [make_config(60), make_config(0)]
    shown = []
    monkeypatch.setattr(
        Progress, "show",
        lambda self, jobs, queued: shown.append([queued, *(describe(job.run) for job in jobs)]),
    )

    def ready():
        wait_for(store.run(configs[0]).folder / "started")
        while shown[-1] != [1, "DAPO s60 0/4"]:
            time.sleep(0.02)

    with interrupted_when(ready):
        grid(configs, **options(store, jobs=1))
    assert all_cancelled(cluster)
    wait_for_end(read_json(store.run(configs[0]).folder / "lock.json")["pid"])
    assert [store.run(c).status() for c in configs] == ["partial", "missing"]
    grid(configs, **options(store))
    assert [store.run(c).status() for c in configs] == ["complete"] * 2


def test_a_killed_grid_leaves_nothing_in_the_queue(cluster, tmp_path):
    """As when a notebook's kernel is restarted: it has no time to clean up."""
    store = Store(tmp_path / "runs")
    folder = store.run(make_config(60)).folder
    parent = in_another_process(
        "grid([make_config(60), make_config(0)], device='cpu', executor='slurm', jobs=1,"
        f"store=Store({str(store.root)!r}))"
    )
    wait_for(folder / "started")
    pid = read_json(folder / "lock.json")["pid"]
    parent.kill()
    parent.wait()
    wait_for_end(pid)
    assert all_cancelled(cluster)


@pytest.mark.parametrize("given, message", [
    ({"minute": 3}, "'minute'.*valid in slurm: partition, gpus, minutes, launch, account"),
    ({"gpus": -1}, "gpus -1; valid: a number from 0"),
    ({"minutes": "4:00"}, "minutes '4:00'; valid: a number from 1"),
    ({"launch": "no.yaml", "gpus": 2}, "a run of engine 'ours', which uses one"),
])  # fmt: skip
def test_bad_options(cluster, tmp_path, given, message):
    with pytest.raises(UserError, match=message):
        grid([make_config()], **options(Store(tmp_path / "runs"), slurm=given))
    assert not (cluster / "calls").exists() and not (tmp_path / "runs").exists()


def test_what_is_missing_or_refused_is_named(cluster, tmp_path, monkeypatch):
    ask = options(Store(tmp_path / "runs"))
    (cluster / "refuse").touch()
    with pytest.raises(UserError, match="SLURM did not take the jobs.*invalid partition"):
        grid([make_config()], **ask)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="no sbatch, srun, sacct, scancel here"):
        grid([make_config()], **ask)
    monkeypatch.setitem(sys.modules, "submitit", None)
    with pytest.raises(UserError, match="pip install submitit"):
        grid([make_config()], **ask)


def test_cpu_nodes_are_asked_for_no_gpu(cluster, tmp_path):
    executor = module.make_executor(tmp_path, {"gpus": 0, "minutes": 5}, None, 3)
    text = executor._make_submission_file_text("command", "uid")
    assert "gpu" not in text and "partition" not in text
    assert "--time=5" in text and "--cpus-per-task=3" in text and "OMP_NUM_THREADS=3" in text


# --- several GPUs -------------------------------------------------------------------------------

# torchrun under accelerate; the processes themselves choose the CPU
ON_CPU = "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_GPU\nnum_machines: 1\n"


def test_only_trl_runs_take_several_gpus_with_the_recipes_launch_file_or_the_named(tmp_path):
    store, mine = Store(tmp_path), tmp_path / "mine.yaml"
    mine.write_text(ON_CPU)
    ours, theirs = (Job(store.run(recipe("meds", "DAPO", "smoke", 0, engine=e)), (), "last", 1,
                        "cpu") for e in ("ours", "trl"))  # fmt: skip
    assert module.make_tasks([ours, theirs], {}) == [ours, theirs]  # a process each
    for named, file in (("eight_gpus_ddp.yaml", module.LAUNCH_DIR / "eight_gpus_ddp.yaml"),
                        (str(mine), mine), (None, module.LAUNCH_DIR / "eight_gpus_vllm.yaml")):
        (task,) = module.make_tasks([theirs], {"gpus": 4, "launch": named})
        assert (task.processes, task.launch) == (4, file)
    memory_r = recipe("memory_r", "R1", "paper", 0)  # its own file is for one GPU
    assert module.launch_file(memory_r) == module.LAUNCH_DIR / "eight_gpus_ddp.yaml"
    with pytest.raises(UserError, match="'no.yaml', which is no file; valid: a path, or eight_"):
        module.launch_file(memory_r, "no.yaml")


@pytest.mark.slow
@pytest.mark.skipif(not MODEL_DIR.exists(), reason="the tiny model is not built")
def test_a_job_in_two_processes(tmp_path):
    """Both train, one writes and evaluates; a failure is the launcher's."""
    file = tmp_path / "cpu.yaml"
    file.write_text(ON_CPU)
    config = recipe("meds", "MEDS", "smoke", 0, engine="trl")
    config = replace(config, num_generations=4, max_steps=2, save_steps=2)
    run = Store(tmp_path / "runs").run(config)
    job = Job(run, (eval_settings("meds", "smoke", "test"),), "last", 1, "cpu")
    replace(job, processes=2, launch=file)()
    assert job.done() and run.status() == "complete"
    assert read_json(run.folder / "environment.json")["processes"] == 2
    assert len(run.metrics()) == 2
    shared_out_badly = replace(job, run=Store(tmp_path).run(replace(config, num_generations=3)))
    with pytest.raises(RuntimeError, match=module.LOGGED):  # 6 completions an update, 4 processes
        replace(shared_out_badly, processes=4, launch=file)()
    assert "ended with status" in shared_out_badly.log_tail()


def test_an_interrupted_job_leaves_the_launcher_time_to_end_its_processes(tmp_path, monkeypatch):
    launcher, pid = tmp_path / "launcher", tmp_path / "pid"
    launcher.write_text(
        f"#!/bin/sh\nsleep 300 & trap 'kill $!; exit 1' TERM; echo $! > {pid}.tmp\n"
        f"mv {pid}.tmp {pid}; wait\n"
    )
    launcher.chmod(0o755)
    monkeypatch.setattr("paperlib.experiments.jobs.sys.executable", str(launcher))
    run = Store(tmp_path).run(make_config())
    job = Job(run, (), "last", 1, "cpu", processes=2, launch=tmp_path / "cpu.yaml")
    with interrupted_when(lambda: wait_for(pid)):
        job()
    assert not alive(int(pid.read_text()))
