"""Where metrics go: names, packages that are missing, and what trackio and wandb are told."""

import sys
import types

import pytest

from paperlib.errors import UserError
from paperlib.files import write_json_atomic
from paperlib.rl import logs as module
from paperlib.rl.logs import RunLog, check_trackers


def test_names(monkeypatch):
    monkeypatch.setattr(module, "find_spec", lambda name: object())
    assert check_trackers(" wandb, tensorboard,wandb") == ("wandb", "tensorboard")
    assert check_trackers("none") == check_trackers("") == ()
    with pytest.raises(UserError, match="unknown report_to 'none'"):
        check_trackers("none,wandb")
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    with pytest.raises(UserError, match="names trackio, which is not installed: pip install tr"):
        check_trackers("trackio")


@pytest.fixture
def folder(tmp_path):
    write_json_atomic(tmp_path / "run" / "config.json", {"method": "DAPO"})
    write_json_atomic(tmp_path / "run" / "environment.json", {"started": "noon"})
    return tmp_path / "run"


def stub(monkeypatch, name):
    """A package that notes what it is told."""
    told = []
    run = types.SimpleNamespace(
        log=lambda metrics, step: told.append((step, metrics)),
        finish=lambda: told.append("finish"),
    )
    package = types.ModuleType(name)
    package.init = lambda **options: (told.append(options), run)[1]
    monkeypatch.setitem(sys.modules, name, package)
    return told


@pytest.mark.parametrize("name", ["wandb", "trackio"])
def test_a_run_keeps_its_name_when_it_resumes_and_a_new_one_gets_another(
    monkeypatch, folder, name
):
    told = stub(monkeypatch, name)
    for start, started in ((0, "noon"), (1, "noon"), (0, "midnight")):
        write_json_atomic(folder / "environment.json", {"started": started})
        log = RunLog(folder, start, 4, progress=False, trackers=[name])
        log.step({"step": start + 1, "loss": 0.5})
        log.close()
    first, again, anew = [options for options in told if "project" in options]
    assert told[1:3] == [(1, {"loss": 0.5}), "finish"] and told[4] == (2, {"loss": 0.5})
    assert first == again and first["name"] != anew["name"]
    assert first["config"] == {"method": "DAPO"} and first["resume"] == "allow"
    assert first["name"].startswith("run-") and ("id" in first) == (name == "wandb")
    assert not (folder / "tensorboard").exists()


def test_nothing_but_tensorboard_is_told_unless_asked(monkeypatch, folder):
    for name in ("wandb", "trackio"):
        monkeypatch.setitem(sys.modules, name, None)  # an import would fail
    RunLog(folder, 0, 4, progress=False).close()
    assert list((folder / "tensorboard").iterdir())
