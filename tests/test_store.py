"""The run store, with a stand-in for training that writes what a run writes."""

import json
import multiprocessing
import subprocess
import time
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd
import pytest

from paperlib.environment import environment_record, git_state
from paperlib.errors import UserError
from paperlib.evaluation import harness
from paperlib.evaluation.collapse import CollapseWatch
from paperlib.evaluation.settings import EvalSettings
from paperlib.experiments.store import Run, Store
from paperlib.files import read_json, read_jsonl, write_json_atomic, written_together
from paperlib.rl import train as training
from paperlib.rl.config import RunConfig, finished

SETTINGS = EvalSettings("tiny_test", 4, 1.0, 1.0, 20, 0, "tags")


@dataclass(frozen=True)
class Correct:
    """A reward term's settings."""

    weight: float = 1.0


def make_config(seed: int = 0, **changes) -> RunConfig:
    config = RunConfig(
        paper="meds", method="DAPO", profile="smoke", seed=seed, model="tiny",
        dataset="tiny-smoke", prompt="boxed", terms=(Correct(),), max_steps=4,
    )  # fmt: skip
    return replace(config, **changes)


def fake_train(
    config: RunConfig, folder: Path, *, progress: bool = True, device: str = "cpu", watch=None,
    report_to: str = "tensorboard",
):
    """Steps of nothing, one checkpoint every other step; resumes like the real one."""
    finished(config, folder)  # refuses a folder of another config
    write_json_atomic(folder / "config.json", config.to_dict())
    done = len(read_jsonl(folder / "metrics.jsonl"))
    (folder / "rollouts").mkdir(exist_ok=True)
    for step in range(done + 1, config.max_steps + 1):
        frame = pd.DataFrame({"step": [step, step], "reward": [0.0, 1.0]})
        frame.to_parquet(folder / "rollouts" / f"{step:06d}.parquet")
        if step % 2 == 0:
            (folder / "checkpoints" / f"{step:06d}").mkdir(parents=True)
            (folder / "checkpoints" / f"{step:06d}" / "COMPLETE").write_text("{}")
        with open(folder / "metrics.jsonl", "a") as file:
            file.write(json.dumps({"step": step, "reward": 0.5}) + "\n")
    write_json_atomic(folder / "complete.json", {"reason": "finished", "step": config.max_steps})


@pytest.fixture
def trained(monkeypatch) -> list[str]:
    """Installs the stand-in; the list gets the name of each run that it is called for."""
    calls = []

    def train(config, folder, **kwargs):
        fake_train(config, folder, **kwargs)
        calls.append(config.name)

    monkeypatch.setattr(training, "train", train)
    return calls


def test_ensure_trains_once_then_reads(tmp_path, trained):
    run = Store(tmp_path).run(make_config())
    assert run.folder == tmp_path / "smoke" / run.config.name
    assert run.status() == "missing"
    assert run.ensure(device="cpu") is run
    assert run.status() == "complete"
    Store(tmp_path).run(make_config()).ensure()
    assert trained == [run.config.name]
    assert Store(tmp_path).folders() == [run.folder]
    assert not (run.folder / "lock.json").exists()


def test_a_run_warns_of_collapses_unless_told_otherwise(tmp_path, monkeypatch):
    watches = []
    monkeypatch.setattr(training, "train", lambda config, folder, watch: watches.append(watch))
    run = Store(tmp_path).run(make_config())
    run.ensure()
    run.ensure(watch=None)
    assert isinstance(watches[0], CollapseWatch) and watches[1] is None


def test_a_partial_run_is_resumed(tmp_path, trained):
    run = Store(tmp_path).run(make_config())
    run.folder.mkdir(parents=True)
    write_json_atomic(run.folder / "config.json", run.config.to_dict())
    (run.folder / "metrics.jsonl").write_text('{"step": 1, "reward": 0.25}\n')
    assert run.status() == "partial"
    assert run.ensure().metrics()["reward"].tolist() == [0.25, 0.5, 0.5, 0.5]


def test_a_folder_of_another_config_is_kept_and_explained(tmp_path, trained):
    run = Store(tmp_path).run(make_config())
    other = make_config(learning_rate=0.125)
    write_json_atomic(run.folder / "config.json", other.to_dict())
    assert run.status() == "foreign"
    with pytest.raises(UserError, match="learning_rate is 0.125 there, 1e-06 here") as error:
        run.ensure()
    assert str(run.folder) in str(error.value) and "max_steps" not in str(error.value)
    assert read_json(run.folder / "config.json")["learning_rate"] == 0.125
    assert trained == []


def test_a_torn_file_is_damage(tmp_path, trained):
    run = Store(tmp_path).run(make_config()).ensure()
    for name in ("config.json", "complete.json"):
        text = (run.folder / name).read_text()
        (run.folder / name).write_text('{"seed": ')
        assert run.status() == "damaged"
        with pytest.raises(UserError, match="is damaged"):
            run.ensure()
        (run.folder / name).write_text(text)
    for mark in run.folder.glob("checkpoints/*/COMPLETE"):
        mark.unlink()
    assert run.status() == "damaged"
    stray = Store(tmp_path).run(make_config(seed=1))
    stray.folder.mkdir()
    for name, status in (("log.txt", "missing"), ("lock", "missing"), ("metrics.jsonl", "damaged")):
        (stray.folder / name).touch()
        assert stray.status() == status


def test_reading(tmp_path, trained):
    run = Store(tmp_path).run(make_config())
    assert run.metrics().empty and run.rollouts().empty and run.checkpoints() == []
    run.ensure()
    with open(run.folder / "metrics.jsonl", "a") as file:
        file.write('{"step": 5, "rew')  # cut off by a kill
    assert run.metrics()["step"].tolist() == [1, 2, 3, 4]
    assert len(run.rollouts()) == 8
    assert run.rollouts([3, 1])["step"].tolist() == [3, 3, 1, 1]
    with pytest.raises(UserError, match="no rollouts of step 9; it has 1, 2, 3, 4"):
        run.rollouts([1, 9])
    (run.folder / "checkpoints" / "000004" / "COMPLETE").unlink()  # half-written
    assert run.checkpoints() == [(2, run.folder / "checkpoints" / "000002")]


def test_an_evaluation_is_computed_once(tmp_path, trained, monkeypatch):
    calls = []

    def evaluate(checkpoint, settings, *, device="cpu"):
        calls.append((checkpoint.name, device))
        return {"settings": settings.to_dict(), "problems": []}

    monkeypatch.setattr(harness, "evaluate", evaluate)
    run = Store(tmp_path).run(make_config()).ensure()
    first = run.evaluation(4, SETTINGS, device="cpu")
    assert run.evaluation(4, SETTINGS) == first and calls == [("000004", "cpu")]
    path = run.folder / "evaluations" / f"000004-{SETTINGS.name}.json"
    assert run.evaluation_path(4, SETTINGS) == path and path.exists()
    with pytest.raises(UserError, match="no checkpoint of step 3; it has 2, 4"):
        run.evaluation(3, SETTINGS)
    write_json_atomic(path, {**first, "settings": {**first["settings"], "samples": 64}})
    with pytest.raises(UserError, match="made with other settings"):
        run.evaluation(4, SETTINGS)


def _hold(run: Run, seconds: float) -> None:
    with run._locked():
        time.sleep(seconds)
        fake_train(run.config, run.folder)


def test_a_second_process_waits_and_then_reads(tmp_path, trained, capfd):
    run = Store(tmp_path).run(make_config())
    other = multiprocessing.get_context("spawn").Process(target=_hold, args=(run, 1.0))
    other.start()
    while not (run.folder / "lock.json").exists():
        time.sleep(0.01)
    run.ensure()
    other.join()
    assert run.status() == "complete" and trained == []
    said = capfd.readouterr().err
    assert f"{run.config.name}: waiting for another process" in said and str(other.pid) in said


def test_json_is_whole_or_not_there(tmp_path):
    path = tmp_path / "new" / "a.json"
    write_json_atomic(path, {"a": [1, "é"]})
    with pytest.raises(TypeError):
        write_json_atomic(path, {"a": object()})
    assert read_json(path) == {"a": [1, "é"]}
    assert [p.name for p in path.parent.iterdir()] == ["a.json"]
    (tmp_path / "plain").touch()
    assert path.stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_jsonl_ignores_only_a_torn_last_line(tmp_path):
    path = tmp_path / "a.jsonl"
    assert read_jsonl(path) == []
    path.write_text('{"a": 1}\n\n{"a": 2}\n{"a": 3}')  # whole, but its newline is missing
    assert read_jsonl(path) == [{"a": 1}, {"a": 2}]
    path.write_text('{"a": 1}\n{"a"\n{"a": 3}\n')
    with pytest.raises(UserError, match="line 2 is not JSON"):
        read_jsonl(path)


def test_environment_record_is_json_and_knows_no_foreign_commit(tmp_path):
    record = json.loads(json.dumps(environment_record()))
    assert record["versions"]["torch"] and record["machine"]["device"] == "cpu"
    assert git_state(tmp_path) == {"commit": None, "dirty": None}
    # a folder inside somebody's repository is not that repository
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    (tmp_path / "site-packages").mkdir()
    assert git_state(tmp_path / "site-packages") == {"commit": None, "dirty": None}
    who = ["-c", "user.name=x", "-c", "user.email=x"]
    commit = ["git", *who, "commit", "-q", "--allow-empty", "-m", "x"]
    subprocess.run(commit, check=True, cwd=tmp_path)
    assert len(git_state(tmp_path)["commit"]) == 40 and git_state(tmp_path)["dirty"] is False


def test_what_belongs_together_is_written_together(tmp_path):
    finals = [tmp_path / "new" / "a.md", tmp_path / "new" / "a.csv"]

    def write(text):
        with written_together(finals) as scratch:
            for path in scratch:
                path.write_text(text or str(1 / 0))

    write("one")
    with pytest.raises(ZeroDivisionError):
        write("")
    assert [p.read_text() for p in finals] == ["one", "one"]
    assert sorted(p.name for p in finals[0].parent.iterdir()) == ["a.csv", "a.md"]
