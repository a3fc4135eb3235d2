"""One job of a grid in several processes, and GPUs shared out among local workers."""

from __future__ import annotations

import importlib.util
import signal
import subprocess
import threading
from dataclasses import replace

import pytest
import torch
from test_grid import alive, wait_for

from paperlib.errors import UserError
from paperlib.experiments import grid as grid_module
from paperlib.experiments import workers
from paperlib.experiments.grid import Job, visible_gpus
from paperlib.experiments.launch import launch_file, launched
from paperlib.experiments.recipes import eval_settings, recipe
from paperlib.experiments.store import Store
from paperlib.files import read_json
from paperlib.rl.trl_settings import LAUNCH_DIR
from paperlib.tasks.tiny import MODEL_DIR

# torchrun under accelerate; the processes themselves choose the CPU
ON_CPU = "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_GPU\nnum_machines: 1\n"


def test_the_launch_file_is_the_recipes_or_the_one_that_is_named(tmp_path):
    meds, memory_r = recipe("meds", "MEDS", "paper", 0), recipe("memory_r", "R1", "paper", 0)
    assert launch_file(meds) == LAUNCH_DIR / "eight_gpus_vllm.yaml"
    assert launch_file(memory_r) == LAUNCH_DIR / "eight_gpus_ddp.yaml"  # its own is for one
    assert launch_file(meds, "eight_gpus_fsdp.yaml") == LAUNCH_DIR / "eight_gpus_fsdp.yaml"
    (tmp_path / "mine.yaml").write_text(ON_CPU)
    assert launch_file(meds, str(tmp_path / "mine.yaml")) == tmp_path / "mine.yaml"
    with pytest.raises(UserError, match="'no.yaml', which is no file; valid: a path, or eight_"):
        launch_file(meds, "no.yaml")


def test_only_trl_runs_take_several_gpus(tmp_path):
    pytest.importorskip("submitit", reason="the extra 'slurm' is not installed")
    from paperlib.experiments.slurm import make_tasks

    store = Store(tmp_path)
    ours, theirs = (Job(store.run(recipe("meds", "DAPO", "smoke", 0, engine=e)), (), "last", 1,
                        "cpu") for e in ("ours", "trl"))  # fmt: skip
    assert [t.processes for t in make_tasks([ours, theirs], {})] == [1, 1]
    (task,) = make_tasks([theirs], {"gpus": 4, "launch": "eight_gpus_ddp.yaml"})
    assert (task.processes, task.launch.name) == (4, "eight_gpus_ddp.yaml")
    with pytest.raises(UserError, match="gpus 4, but .* engine 'ours', which uses one"):
        make_tasks([theirs, ours], {"gpus": 4})


@pytest.mark.slow
@pytest.mark.skipif(not MODEL_DIR.exists(), reason="the tiny model is not built")
@pytest.mark.skipif(not importlib.util.find_spec("cloudpickle"), reason="cloudpickle is missing")
def test_a_job_in_two_processes(tmp_path):
    """Both train, one writes and evaluates; a failure is the launcher's."""
    file = tmp_path / "cpu.yaml"
    file.write_text(ON_CPU)
    config = recipe("meds", "MEDS", "smoke", 0, engine="trl")
    config = replace(config, num_generations=4, max_steps=2, save_steps=2)
    run = Store(tmp_path / "runs").run(config)
    settings = eval_settings("meds", "smoke", "test")
    job = Job(run, (settings,), "last", 1, "cpu")
    launched(job, 2, file)
    assert job.done() and run.status() == "complete"
    assert read_json(run.folder / "environment.json")["processes"] == 2
    assert len(run.metrics()) == 2
    shared_out_badly = Job(Store(tmp_path / "runs").run(replace(config, num_generations=3)),
                           (), "last", 1, "cpu")  # fmt: skip
    with pytest.raises(subprocess.CalledProcessError):  # 6 completions an update, 4 processes
        launched(shared_out_badly, 4, file)


def test_an_interrupted_job_leaves_the_launcher_time_to_end_its_processes(tmp_path, monkeypatch):
    launcher, pid = tmp_path / "launcher", tmp_path / "pid"
    launcher.write_text(
        f"#!/bin/sh\nsleep 300 & trap 'kill $!; exit 1' TERM; echo $! > {pid}.tmp\n"
        f"mv {pid}.tmp {pid}; wait\n"
    )
    launcher.chmod(0o755)
    monkeypatch.setattr("paperlib.experiments.launch.sys.executable", str(launcher))
    main = threading.main_thread().ident

    def interrupt():
        wait_for(pid)
        signal.pthread_kill(main, signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            launched("a job", 2, tmp_path / "cpu.yaml")
    finally:
        signal.signal(signal.SIGINT, before)
        thread.join()
    assert not alive(int(pid.read_text()))


def test_workers_share_out_the_gpus(monkeypatch, tmp_path):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert visible_gpus("auto") == visible_gpus("cuda") == ["0", "1"]
    assert visible_gpus("cpu") == visible_gpus("cuda:1") == []
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,GPU-ab")
    assert visible_gpus("auto") == ["5", "GPU-ab"]

    started = []

    class Stub(workers.Worker):
        def start(self, job):
            self.job = job
            started.append(self.gpu)

        def outcome(self):
            self.job = None
            return "done"

    environments = []
    real = subprocess.Popen

    def popen(command, **kwargs):
        environments.append(kwargs["env"].get("CUDA_VISIBLE_DEVICES"))
        return real(["cat"], **{**kwargs, "env": None})

    monkeypatch.setattr(workers.subprocess, "Popen", popen)
    monkeypatch.setattr(grid_module, "Worker", Stub)
    store = Store(tmp_path)
    configs = [recipe("meds", "DAPO", "smoke", seed) for seed in range(4)]
    grid_module.grid(configs, store=store)
    assert environments == ["5", "GPU-ab"] and started == ["5", "GPU-ab"] * 2
