"""Artefacts by name, and running their notebooks one by one or several at once."""

import os
import signal
import subprocess
import sys
import time

import pytest
from test_grid import alive, store, wait_for, wait_for_end  # noqa: F401 (the fixture)
from test_notebooks import make_notebook
from test_store import make_config

from paperlib.__main__ import main
from paperlib.environment import ROOT
from paperlib.errors import UserError
from paperlib.experiments.artefacts import artefacts, choose, reproduce
from paperlib.files import read_json


def test_table_1_comes_first_then_the_folders_in_turn(tmp_path):
    for name in ("memory_r/fig10", "memory_r/fig2", "meds/table1", "beyond/a_b", "memory_r/table1"):
        make_notebook(tmp_path / "notebooks" / f"{name}.ipynb")
    assert list(artefacts(tmp_path)) == [
        "table1-memory-r", "table1-meds", "fig2-memory-r", "a-b-beyond", "fig10-memory-r",
    ]  # fmt: skip
    assert list(choose(["table1", "a-b"], tmp_path)) == ["table1-memory-r", "table1-meds",
                                                         "a-b-beyond"]
    assert list(choose(["table1-meds", "table1-meds"], tmp_path)) == ["table1-meds"]
    assert len(choose(["all"], tmp_path)) == 5
    with pytest.raises(UserError, match="unknown artefact fig11; valid: all, table1, fig2"):
        choose(["fig11", "fig2"], tmp_path)
    assert set(artefacts(ROOT).values()) == set((ROOT / "notebooks").glob("*/*.ipynb"))


def test_a_failing_notebook_does_not_stop_the_others(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(ROOT)
    (tmp_path / "Makefile").touch()  # the root for the runner
    good, bad = (tmp_path / "notebooks" / "meds" / f"{name}.ipynb" for name in ("good", "bad"))
    make_notebook(bad, "1 / 0", parameters='PROFILE = "tiny"')
    make_notebook(good, "print(PROFILE, SEEDS)")
    torn = good.with_name("torn.ipynb")
    torn.write_text('{"cells": [')
    paths = {"torn": torn, "bad": bad, "good": good}
    failed = reproduce(paths, {"PROFILE": "smoke", "SEEDS": "3"}, parallel=2)
    assert sorted(failed) == ["bad", "torn"]
    err = capfd.readouterr().err
    assert "torn.ipynb cannot be read as a notebook" in err
    assert "bad: FAILED" in err and "good: done" in err and "ZeroDivisionError" in err
    executed = (tmp_path / "executed" / "smoke" / "meds" / "good.ipynb").read_text()
    assert "smoke [3]" in executed


def test_a_mistyped_parameter_starts_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("subprocess.Popen", None)  # calling it would raise
    assert main(["reproduce"]) == 0
    assert capsys.readouterr().out.startswith("table1-memory-r ")
    assert main(["reproduce", "nothing"]) == 2
    assert "unknown artefact nothing" in capsys.readouterr().err
    assert main(["reproduce", "table1-meds", "-p", "SEED", "3"]) == 2
    assert "unknown parameter 'SEED'; valid: " in capsys.readouterr().err
    with pytest.raises(TypeError):  # DRAWS is some other notebook's: make gives PRESET to all
        reproduce({"n": ROOT / "notebooks" / "meds" / "fig4.ipynb"}, {"DRAWS": "3"})


COMMAND = """
import signal, sys
from pathlib import Path
import paperlib.environment
paperlib.environment.ROOT = Path(sys.argv.pop(1))  # whose notebooks there are
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background has it ignored
from paperlib.__main__ import main
sys.exit(main())
"""
GRID = """
import os, subprocess
from pathlib import Path
from paperlib.experiments.grid import grid
from test_store import *
sleep = subprocess.Popen(["sleep", "300"])
Path("pids").write_text(f"{os.getppid()} {os.getpid()} {sleep.pid}")
grid([make_config(60), make_config(60, max_steps=6)], store=Store("runs"), device="cpu", jobs=2)
"""


@pytest.mark.parametrize(("command", "number"), [
    ("reproduce", signal.SIGTERM),
    *(pytest.param(command, number, marks=pytest.mark.slow) for command, number in (
        ("reproduce", signal.SIGHUP), ("reproduce", signal.SIGINT), ("reproduce", signal.SIGKILL),
        ("notebook", signal.SIGTERM), ("notebook", signal.SIGINT), ("notebook", signal.SIGKILL))),
])  # fmt: skip
def test_what_ends_a_command_ends_its_notebooks_kernels_and_workers(
    store, tmp_path, command, number  # noqa: F811
):
    """Sent twice: nothing interrupts the cleaning up. SIGKILL: the notebook misses its parent, or
    the kernel its runner, which ends the kernel, but nothing that a cell started by itself."""
    (tmp_path / "Makefile").touch()
    path = tmp_path / "notebooks" / "meds" / "n.ipynb"
    make_notebook(path, GRID)
    process = subprocess.Popen(
        [sys.executable, "-c", COMMAND, str(tmp_path), command,
         "n" if command == "reproduce" else str(path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
    )  # fmt: skip
    runs = [store.run(make_config(60, max_steps=steps)) for steps in (4, 6)]
    try:
        for run in runs:
            wait_for(run.folder / "started")
        pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
        pids += [read_json(run.folder / "lock.json")["pid"] for run in runs]
        assert all(map(alive, pids))
        sleep = pids.pop(2)
        pids += [sleep] * ((command, number) != ("notebook", signal.SIGKILL))
        for _ in range(2):
            process.send_signal(number)
            time.sleep(0.1)
        assert process.wait(30) == (128 + number if number != signal.SIGKILL else -number)
        for pid in pids:
            wait_for_end(pid, 20 if number == signal.SIGKILL else 0)
    finally:
        process.kill()
        if alive(sleep):
            os.kill(sleep, signal.SIGKILL)
    assert not list((tmp_path / "executed" / "tiny" / "meds").iterdir())
    assert [run.status() for run in runs] == ["partial"] * 2
    assert [run.ensure().status() for run in runs] == ["complete"] * 2
