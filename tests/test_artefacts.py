"""Artefacts by name, and running their notebooks one by one or several at once."""

import json

import pytest

from paperlib.__main__ import main
from paperlib.environment import ROOT
from paperlib.errors import UserError
from paperlib.experiments.artefacts import artefacts, choose, reproduce


def write_notebook(path, *sources):
    cells = [
        {"cell_type": "code", "id": f"c{i}", "metadata": {"tags": ["parameters"] if i == 0 else []},
         "execution_count": None, "outputs": [], "source": source}
        for i, source in enumerate(sources)
    ]  # fmt: skip
    path.parent.mkdir(parents=True, exist_ok=True)
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    path.write_text(
        json.dumps({"cells": cells, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5})
    )


def test_table_1_comes_first_then_the_folders_in_turn(tmp_path):
    for name in ("memory_r/fig10", "memory_r/fig2", "meds/table1", "beyond/a_b", "memory_r/table1"):
        write_notebook(tmp_path / "notebooks" / f"{name}.ipynb", "")
    assert list(artefacts(tmp_path)) == [
        "table1-memory-r", "table1-meds", "fig2-memory-r", "a-b-beyond", "fig10-memory-r",
    ]  # fmt: skip
    assert list(choose(["table1", "a-b"], tmp_path)) == ["table1-memory-r", "table1-meds",
                                                         "a-b-beyond"]
    assert list(choose(["table1-meds", "table1-meds"], tmp_path)) == ["table1-meds"]
    assert len(choose(["all"], tmp_path)) == 5
    with pytest.raises(UserError, match="unknown artefact fig11; valid: all, table1, fig2"):
        choose(["fig11", "fig2"], tmp_path)


def test_every_notebook_of_the_repository_has_a_name():
    paths = {p for p in (ROOT / "notebooks").glob("*/*.ipynb")}
    assert set(artefacts(ROOT).values()) == paths


def test_a_failing_notebook_does_not_stop_the_others(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(ROOT)
    (tmp_path / "Makefile").touch()  # the root for the runner
    good, bad = (tmp_path / "notebooks" / "meds" / f"{name}.ipynb" for name in ("good", "bad"))
    write_notebook(bad, 'PROFILE = "tiny"', "1 / 0")
    write_notebook(good, 'PROFILE = "tiny"\nSEEDS = [0]', "print(PROFILE, SEEDS)")
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


def test_the_command_lists_the_names(capsys):
    assert main(["reproduce"]) == 0
    assert capsys.readouterr().out.startswith("table1-memory-r ")
    assert main(["reproduce", "nothing"]) == 2
    assert "unknown artefact nothing" in capsys.readouterr().err


def test_a_mistyped_parameter_starts_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("subprocess.Popen", None)  # calling it would raise
    assert main(["reproduce", "table1-meds", "-p", "SEED", "3"]) == 2
    assert "unknown parameter 'SEED'; valid: " in capsys.readouterr().err
    with pytest.raises(TypeError):  # DRAWS is some other notebook's: make gives PRESET to all
        reproduce({"n": ROOT / "notebooks" / "meds" / "fig4.ipynb"}, {"DRAWS": "3"})
