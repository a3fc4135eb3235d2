"""Grids with a stand-in for training, in this process and in others."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from test_store import SETTINGS, Correct, make_config

from paperlib.errors import UserError
from paperlib.experiments import grid as module
from paperlib.experiments.grid import grid
from paperlib.experiments.jobs import Job, child_environment
from paperlib.experiments.progress import Progress, describe
from paperlib.experiments.store import Store
from paperlib.files import read_json, write_json_atomic

# Run at the start of every child process: training and evaluation that take no time.
STAND_IN = """
import os, sys, time, types

def train(config, folder, **kwargs):
    import torch
    from test_store import fake_train, write_json_atomic
    if config.seed == 13:
        raise ValueError("unlucky seed")
    if config.seed == 9:
        os._exit(9)
    if config.seed == 60 and not (folder / "started").exists():
        write_json_atomic(folder / "config.json", config.to_dict())
        (folder / "started").touch()
        time.sleep(60)
    print("trained in", os.getpid(), flush=True)
    fake_train(config, folder, **kwargs)
    (folder / "threads").write_text(f"{torch.get_num_threads()} {os.environ['OMP_NUM_THREADS']}")

def evaluate(checkpoint, settings, *, device, progress):
    return {"settings": settings.to_dict(), "step": int(checkpoint.name), "problems": []}

for name, function in (("paperlib.rl.train", train), ("paperlib.evaluation.harness", evaluate)):
    sys.modules[name] = types.ModuleType(name)
    setattr(sys.modules[name], function.__name__, function)
"""


@pytest.fixture
def store(tmp_path: Path, monkeypatch) -> Store:
    """A store whose runs are trained by the stand-in, here and in child processes."""
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(STAND_IN)
    monkeypatch.syspath_prepend(site)
    names = ("paperlib.rl.train", "paperlib.evaluation.harness")
    for name in names:
        monkeypatch.setitem(sys.modules, name, None)  # registers what is to be put back
    exec(STAND_IN, {})
    return Store(tmp_path / "runs")


@pytest.mark.parametrize("executor", ["local", "inline"])
def test_trains_and_evaluates_each_run_once_in_order(store, executor, tmp_path, monkeypatch):
    work_beside_another_paperlib(tmp_path, monkeypatch)  # the processes import this one
    configs = [make_config(2), make_config(1), make_config(2)]
    runs = grid(
        configs, [SETTINGS], checkpoints="all", store=store, executor=executor, device="cpu"
    )
    assert [run.config.seed for run in runs] == [2, 1, 2]
    for run in runs[:2]:
        assert run.status() == "complete"
        names = sorted(p.name for p in run.folder.glob("evaluations/*"))
        assert names == [f"00000{step}-{SETTINGS.name}.json" for step in (2, 4)]
        assert read_json(run.evaluation_path(2, SETTINGS))["step"] == 2
        threads, omp = (run.folder / "threads").read_text().split()
        assert threads == "1" and (omp == "1" or executor == "inline")


@pytest.mark.parametrize(("best", "tested"), [(2, [2, 4]), (4, [4])])
def test_the_test_set_is_for_the_last_and_the_chosen_checkpoint(store, best, tested, monkeypatch):
    def evaluate(checkpoint, settings, **_):
        right = 3 if int(checkpoint.name) == best else 1
        problems = [{"level": level, "n": 4, "correct": right} for level in (1, 2, 3, 4)]
        return {"settings": settings.to_dict(), "problems": problems}

    monkeypatch.setattr(sys.modules["paperlib.evaluation.harness"], "evaluate", evaluate)
    validation, options = replace(SETTINGS, seed=1), {"executor": "inline", "device": "cpu"}
    for _ in range(2):  # the second finds everything there
        (run,) = grid([make_config(0)], [validation, SETTINGS], checkpoints="chosen", store=store,
                      **options)
        there = {s: [step for step in (2, 4) if run.evaluation_path(step, s).exists()]
                 for s in (validation, SETTINGS)}  # fmt: skip
        assert there == {validation: [2, 4], SETTINGS: tested}
        monkeypatch.setattr(sys.modules["paperlib.evaluation.harness"], "evaluate", None)


def test_threads_are_put_back_and_training_is_told_where_to_report(store, monkeypatch):
    before, told = torch.get_num_threads(), []
    train = sys.modules["paperlib.rl.train"].train
    monkeypatch.setattr(
        sys.modules["paperlib.rl.train"], "train",
        lambda *args, **kwargs: (told.append(kwargs["report_to"]), train(*args, **kwargs)),
    )
    options = {"store": store, "executor": "inline", "device": "cpu"}
    (run,) = grid([make_config(0)], [SETTINGS], threads=2, **options)
    grid([make_config(1)], report_to="none", **options)
    assert told == ["tensorboard", "none"]
    assert (run.folder / "threads").read_text().startswith("2 ")
    assert torch.get_num_threads() == before
    assert [p.name[:6] for p in run.folder.glob("evaluations/*")] == ["000004"]  # the last only


@pytest.mark.parametrize("executor", ["local", "inline"])
def test_failed_runs_do_not_stop_the_others(store, executor):
    seeds = [13, 1, 0] if executor == "inline" else [13, 9, 1, 0]
    foreign = store.run(make_config(1)).folder / "config.json"
    write_json_atomic(foreign, make_config(1, max_steps=7).to_dict())
    with pytest.raises(RuntimeError) as error:
        grid([make_config(s) for s in seeds], store=store, executor=executor, device="cpu")
    text = str(error.value)
    assert text.startswith(f"{len(seeds) - 1} of {len(seeds)} runs failed: ")
    assert make_config(13).name in text and make_config(0).name not in text
    assert "ValueError: unlucky seed" in text
    assert ("ended with status 9" in text) == (executor == "local")
    assert "max_steps is 7 there, 4 here" in text and read_json(foreign)["max_steps"] == 7
    assert store.run(make_config(0)).status() == "complete"


@dataclass(frozen=True)
class Unreadable(Correct):
    def __reduce__(self):
        return int, ("no number",)


def test_each_job_is_a_process_with_its_output_in_its_own_log(store):
    """Also one that cannot be read, and one whose term no other process can import."""
    scope = {"__name__": "__main__"}
    exec("from dataclasses import dataclass\n@dataclass(frozen=True)\n"
         "class Mine:\n    weight: float = 2.0\n", scope)  # fmt: skip
    terms = (Correct(), scope["Mine"](), Unreadable())
    configs = [replace(make_config(i), terms=(term,)) for i, term in enumerate(terms)]
    with pytest.raises(RuntimeError, match="1 of 3 runs failed"):
        grid(configs, store=store, jobs=2, device="cpu")
    runs = [store.run(config) for config in configs]
    assert [run.status() for run in runs] == ["complete", "complete", "missing"]
    one, two, three = ((run.folder / "log.txt").read_text() for run in runs)
    assert one.count("trained in") == two.count("trained in") == 1 and one != two
    assert "no number" in three and "trained in" not in three


def test_complete_runs_start_nothing(store, monkeypatch):
    config = make_config()
    grid([config], [SETTINGS], store=store, executor="inline", device="cpu")
    monkeypatch.setattr(Job, "start", None)
    monkeypatch.setattr(module, "Progress", None)
    assert grid([config], [SETTINGS], store=store)[0].status() == "complete"
    code = f"grid([make_config()], [SETTINGS], store=Store({str(store.root)!r}))"
    assert in_another_process(f"{code}; assert 'torch' not in sys.modules").wait() == 0


def in_another_process(code: str, **options) -> subprocess.Popen:
    """A test run in the background of a shell has SIGINT ignored, and hands that on."""
    code = ("import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler);"
            f"from paperlib.experiments.grid import grid; from test_store import *; {code}")
    environment = {**os.environ, **child_environment(1)}
    return subprocess.Popen([sys.executable, "-c", code], env=environment, **options)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_what_ends_a_grid_ends_its_jobs_and_leaves_a_store_that_resumes(store, number):
    run = store.run(make_config(60))
    parent = in_another_process(
        f"grid([make_config(60)], store=Store({str(store.root)!r}), device='cpu')",
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    wait_for(run.folder / "started")
    pid = read_json(run.folder / "lock.json")["pid"]
    parent.send_signal(number)
    assert ("KeyboardInterrupt" in parent.communicate(timeout=30)[1]) == (number == signal.SIGINT)
    wait_for_end(pid, 0 if number == signal.SIGINT else 20)
    assert run.status() == "partial"
    (run,) = grid([run.config], store=store, executor="inline", device="cpu")
    assert run.status() == "complete"


@pytest.mark.parametrize(("given", "message"), [
    ({"executor": "mars"}, "unknown executor 'mars'; valid: local, inline, slurm"),
    ({"checkpoints": "best"}, "unknown checkpoints 'best'"), ({"jobs": 0}, "jobs is 0"),
    ({"slurm": {"gpus": 1}}, "slurm has options, but executor is 'local'"),
    ({"report_to": "tensorbord"}, "unknown report_to 'tensorbord'; valid: tensorboard"),
])  # fmt: skip
def test_bad_arguments(store, given, message):
    with pytest.raises(UserError, match=message):
        grid([make_config()], store=store, **given)
    assert not store.root.exists()


def test_progress_tells_the_step(store, monkeypatch):
    run = store.run(make_config())
    assert describe(run) == "DAPO s0 0/4"
    run.folder.mkdir(parents=True)
    (run.folder / "metrics.jsonl").write_text('{"step": 1}\n{"step": 2}\n{"st')
    assert describe(run) == "DAPO s0 2/4"
    read, write = os.pipe()
    for parent in (os.getppid(), 1):  # another process's children do not have the descriptor
        monkeypatch.setenv("PAPERLIB_STATUS", f"{parent} {write} n.ipynb")
        progress = Progress(total=3, done=1)
        for queued in (2, 0):  # the second comes too soon
            progress.show([Job(run, (), "last", 1, "cpu")], queued)
    os.close(write)
    with os.fdopen(read) as file:
        assert file.read() == "n.ipynb: 1/3 runs; 2 queued, DAPO s0 2/4\n"


def test_a_bar_is_drawn_anew_only_when_something_changed(store, monkeypatch, capsys):
    monkeypatch.setenv("PAPERLIB_PROGRESS", "1")
    progress, job = Progress(total=3, done=1), Job(store.run(make_config()), (), "last", 1, "cpu")
    progress.show([job])
    assert "DAPO s0 0/4" in capsys.readouterr().err
    for _ in range(100):
        progress.show([job])
    assert capsys.readouterr().err == ""
    progress.bar.close()


def test_jobs_share_out_the_gpus(store, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert module.visible_gpus("auto") == module.visible_gpus("cuda") == ["0", "1"]
    assert module.visible_gpus("cpu") == module.visible_gpus("cuda:1") == []
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,GPU-ab")
    assert module.visible_gpus("auto") == ["5", "GPU-ab"]
    seen, real = [], subprocess.Popen

    def popen(command, **options):
        seen.append(options["env"]["CUDA_VISIBLE_DEVICES"])
        return real(["sleep", "0.2"], **options)

    monkeypatch.setattr(subprocess, "Popen", popen)
    grid([make_config(seed) for seed in range(4)], store=store)
    assert seen[:2] == ["5", "GPU-ab"] and sorted(seen) == ["5", "5", "GPU-ab", "GPU-ab"]


def work_beside_another_paperlib(folder: Path, monkeypatch) -> None:
    """Make a folder with a package of that name, as another clone is, the working folder."""
    other = folder / "clone" / "paperlib"
    other.mkdir(parents=True)
    (other / "__init__.py").write_text("raise ImportError('another clone')")
    monkeypatch.chdir(other.parent)


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} never came"
        time.sleep(0.02)


def wait_for_end(pid: int, seconds: float = 20) -> None:
    """A process that was killed takes a moment to be gone."""
    deadline = time.monotonic() + seconds
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not alive(pid)


def alive(pid: int) -> bool:
    """Whether the process runs; one that has ended but is not reaped yet does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    return not (stat.exists() and stat.read_text().rpartition(")")[2].split()[0] == "Z")
