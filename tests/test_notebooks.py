"""Parameters are checked before a kernel starts; real kernels run in the last tests only."""

import json
import multiprocessing
import os
import sys
import threading
from pathlib import Path

import nbformat
import numpy as np
import pytest
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from paperlib.__main__ import main
from paperlib.environment import ROOT
from paperlib.errors import NotebookError, UserError
from paperlib.experiments.notebooks import run_notebook
from paperlib.experiments.parameters import convert, declared_parameters, parse_pairs

DEFAULTS = 'PROFILE = "tiny"  # a name\nSTEPS = 3\nRATE = 0.5\nFAST = False\nSEEDS = [0, 1]\n'


def make_notebook(path: Path, *sources: str, parameters: str = DEFAULTS) -> Path:
    cell = new_code_cell(parameters, metadata={"tags": ["parameters"]})
    cells = [new_markdown_cell("# title"), cell, *map(new_code_cell, sources)]
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(new_notebook(cells=cells), path)
    return path


DEEP: list = []
for _ in range(5000):
    DEEP = [DEEP]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A clone in a folder with a space and braces in its name."""
    root = tmp_path / "my {clone} here"
    root.mkdir()
    (root / "pyproject.toml").touch()
    return root


@pytest.mark.parametrize(("default", "text", "value"), [
    (3, "7", 7), (3, "-1", -1), (0.5, "1e-6", 1e-6), (0.5, "2", 2.0), (0.5, 1, 1.0),
    (False, "true", True), (False, "1", True), (True, "False", False), ("a", "007", "007"),
    ("a", "", ""), ([0, 1], "0,1,2", [0, 1, 2]), ([0, 1], "5", [5]), ([0, 1], "[]", []),
    ([0], (1, 2), [1, 2]), ((0, 1), "[3, 4]", (3, 4)), ((1, 2), [3], (3,)),
    (["GRPO"], "GRPO, DAPO", ["GRPO", "DAPO"]), ({}, "{'a': 1}", {"a": 1}), (None, "null", None),
    (None, "4", 4), (None, "word", "word"),
])  # fmt: skip
def test_a_value_becomes_the_defaults_type(default, text, value):
    result = convert("X", text, {"X": default})
    assert result == value and type(result) is type(value)


@pytest.mark.parametrize(("default", "given"), [
    (3, "007"), (3, "3.0"), (3, "None"), (3, "True"), (3, True), (3, 3.0), (0.5, "nan"),
    (0.5, "fast"), (False, "yes"), (False, "null"), (False, 1), ("a", 1), ([0, 1], "0,one"),
    ([0, 1], "0,,1"), ([0, 1], "0.5"), ([0, 1], "(0"), ({}, "[1]"),
    ({}, {"a": float("nan")}), ({}, {"a": 1, 2: 3}),  # the file sorts the keys
    ({1}, "{2}"),  # no form in a notebook's JSON
    (None, Path("a")), (None, np.float64(2)), (None, float("inf")),
    ("a", "caf\udce9"),  # a byte of the command line that is no UTF-8
    (0.5, 10**400),  # no float is so large
    (0.5, -(10**5000)),  # nor has Python a text of it
    (0.5, "1e999"), ([0.5], [1, 10**400]), ((0.5,), "1" + 400 * "0"), ([0.5], "nan"),
    ([[0.5]], [[float("inf")]]), (3, 10**5000), (3, "1" + 5000 * "0"), (None, [10**5000]),
    (None, {"a": 10**5000}), (None, "{[]: 1}"), ([0], "[" + 300 * "(" + "0"),
    ({}, "-" * 100_000 + "1"), (None, DEEP),
], ids=lambda value: type(value).__name__)  # fmt: skip
def test_a_value_of_another_type_is_refused(default, given):
    with pytest.raises(UserError, match="parameter X is .* must be a .* default"):
        convert("X", given, {"X": default})


def test_unknown_parameters_and_those_given_twice_are_named():
    with pytest.raises(UserError, match="unknown parameter 'SEED'; valid: SEEDS, STEPS"):
        convert("SEED", "1", {"SEEDS": [0], "STEPS": 1})
    assert parse_pairs([["A", "1"], ["B", "2"]]) == {"A": "1", "B": "2"}
    with pytest.raises(UserError, match="'A' is given twice"):
        parse_pairs([["A", "1"], ["A", "2"]])


def test_declared_parameters_are_literals_in_one_cell(tmp_path):
    def declared(*sources):
        cells = [new_code_cell(source, metadata={"tags": ["parameters"]}) for source in sources]
        return declared_parameters(new_notebook(cells=cells), "n")

    assert declared("A = -1\nB: str = 'x'\n# note\n") == {"A": -1, "B": "x"}
    for source in (
        "A = 1 + X", "import os", "A = B = 1", "A[0] = 1", "A += 1", "A: int", "print(1)",
        "A = {[]: 1}", "%matplotlib inline", "A = 1\0", f"A = {10_000 * '-'}1", f"A = {300 * '('}",
    ):  # fmt: skip
        with pytest.raises(UserError, match="n must hold lines NAME = literal and nothing else"):
            declared(source)
    for sources in ((), ("A = 1", "B = 2")):
        with pytest.raises(UserError, match=f"has {len(sources)} cells tagged"):
            declared(*sources)


def test_bad_requests_fail_before_any_kernel(tmp_path, monkeypatch):
    monkeypatch.setattr("paperlib.experiments.notebooks._execute", None)  # calling it would raise
    path = make_notebook(tmp_path / "n.ipynb", "1")
    for call, message in [
        (lambda: run_notebook(tmp_path / "no.ipynb"), "no.ipynb cannot be read as a notebook"),
        (lambda: run_notebook(path, {"NOPE": 1}), "unknown parameter 'NOPE'"),
        (lambda: run_notebook(path, {"STEPS": "x"}), "parameter STEPS is 'x'"),
        (lambda: run_notebook(path, output=path), "is the notebook itself"),
        (lambda: run_notebook(path, output=tmp_path / "out.html"), "does not end in .ipynb"),
        (lambda: run_notebook(path, output=path / "out.ipynb"), "folder .* cannot be made"),
    ]:
        with pytest.raises(UserError, match=message):
            call()
    (tmp_path / "torn.ipynb").write_text('{"cells": [')
    with pytest.raises(UserError, match="cannot be read as a notebook"):
        run_notebook(tmp_path / "torn.ipynb")


def test_runs_here_with_this_python_and_the_given_values(project, monkeypatch, tmp_path, capfd):
    # a personal kernel named python3 that would run something else
    hijack = tmp_path / "jupyter" / "kernels" / "python3"
    hijack.mkdir(parents=True)
    (hijack / "kernel.json").write_text(
        json.dumps({"argv": ["false"], "display_name": "x", "language": "python"})
    )
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "jupyter"))
    path = make_notebook(
        project / "notebooks" / "meds" / "n.ipynb",
        "import os, sys, pathlib\nprint(sys.executable)\nprint(os.getcwd())",
        "print(PROFILE, STEPS, RATE, FAST, SEEDS, os.environ['PAPERLIB_PROGRESS'])",
        f"sys.path.append({str(ROOT)!r})\nfrom paperlib.experiments.progress import Progress\n"
        "Progress(3, 1).show([], queued=2)",
    )
    before = dict(os.environ)
    out = run_notebook(path, {"PROFILE": "smoke", "SEEDS": "4,5", "FAST": "true"})
    assert dict(os.environ) == before
    assert out == project / "executed" / "smoke" / "meds" / "n.ipynb"
    assert [p.name for p in out.parent.iterdir()] == ["n.ipynb"]
    assert capfd.readouterr().err == "n.ipynb: 1/3 runs; 2 queued\n"
    executed = nbformat.read(out, as_version=4)
    text = "".join(o.text for c in executed.cells for o in c.get("outputs", []))
    assert text.splitlines() == [sys.executable, str(project), "smoke 3 0.5 True [4, 5] 0"]
    assert str(project) not in json.dumps(executed.metadata)


@pytest.mark.parametrize(("source", "problem"), [
    ("\nassert 1 == 2, 'not two'", "raised AssertionError: not two"),
    ("\nimport os; os._exit(9)", "killed the kernel (out of memory?)"),
    ("\nimport time; time.sleep(60)", "took longer than 1 s"),
    ("\nprint('half'); import sys; sys.exit(0)", "raised SystemExit: 0"),
])  # fmt: skip
def test_a_failing_cell_is_named_and_a_good_output_stays(project, capsys, source, problem):
    path, out = make_notebook(project / "n.ipynb", source, "print('never')"), project / "out.ipynb"
    out.write_text("good")
    assert main(["notebook", str(path), "--output", str(out), "--cell-timeout", "1"]) == 1
    assert f"cell 3 ({source.strip()!r}) {problem}" in capsys.readouterr().err
    assert out.read_text() == "good"
    *_, cell, after = nbformat.read(project / "out.failed.ipynb", as_version=4).cells
    said = [o.text if "text" in o else f"raised {o.ename}: {o.evalue}" for o in cell.outputs]
    assert problem in said and not after.outputs


VALUES = {
    "TEXT": "007", "BACK": 'C:\\new\\table "x" {y}\n\'\u2028\x00$é', "FLAG": False, "RATE": 1e-6,
    "PAIR": (1, 2), "NESTED": {2: (1, [None, True])}, "NOTHING": None, "BIG": 10**30,
}


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    """A notebook of somebody else's kernel that draws bars, run with values that could change."""
    root = tmp_path_factory.mktemp("values")
    (root / "pyproject.toml").touch()
    defaults = {**VALUES, "TEXT": "", "BACK": "", "FLAG": True, "RATE": 1.0, "PAIR": (0,),
                "NESTED": {}, "BIG": 0}
    path = make_notebook(
        root / "n.ipynb",
        f"print(repr({{name: globals()[name] for name in {list(VALUES)}}}))",
        "from tqdm import tqdm\nfor _ in tqdm(range(3000), mininterval=0): pass",
        "for i in range(300): print('\\r', i, end='', flush=True)",
        parameters="\n".join(f"{name} = {value!r}" for name, value in defaults.items()),
    )
    notebook = nbformat.read(path, as_version=4)
    notebook.metadata["kernelspec"] = {"name": "my-venv-kernel", "display_name": "mine"}
    nbformat.write(notebook, path)
    return run_notebook(path, VALUES, root / "out.ipynb")


def test_values_arrive_as_what_they_are(executed):
    (output,) = nbformat.read(executed, as_version=4).cells[3].outputs
    assert output.text.strip() == repr(VALUES)


def test_bars_do_not_fill_the_file(executed):
    *_, bars, carriage_returns = nbformat.read(executed, as_version=4).cells
    assert bars.outputs == [] and [o.text for o in carriage_returns.outputs] == [" 299"]
    assert executed.stat().st_size < 20_000


def test_an_executed_notebook_is_not_run_again_without_its_values(executed):
    with pytest.raises(UserError, match="was executed with parameters"):
        run_notebook(executed, {"RATE": 7.0}, executed.with_name("again.ipynb"))
    left = {p.name for p in executed.parent.iterdir()}
    assert left == {"n.ipynb", "out.ipynb", "pyproject.toml"}


def test_threads_and_forked_processes_run_notebooks_at_once(project, monkeypatch):
    """Kernels take no environment from the process, and nothing waits for a lock of another's."""
    path, barrier = make_notebook(project / "n.ipynb"), threading.Barrier(2)
    before = dict(os.environ)

    def execute(notebook, *_):
        if multiprocessing.parent_process() is None:
            barrier.wait(60)
        return None, notebook

    monkeypatch.setattr("paperlib.experiments.notebooks._execute", execute)
    outputs = [project / "thread.ipynb", project / "process.ipynb"]
    calls = [{"target": run_notebook, "args": (path,), "kwargs": {"output": o}} for o in outputs]
    thread = threading.Thread(**calls[0])
    child = multiprocessing.get_context("fork").Process(**calls[1])
    for one in (thread, child):
        one.start()
    child.join(20)
    child.kill()
    barrier.wait(60)
    thread.join()
    assert all(out.exists() for out in outputs) and dict(os.environ) == before


def test_a_kernel_that_does_not_start(project, monkeypatch):
    def start(self, **_):
        raise RuntimeError("Kernel died before replying to kernel_info")

    monkeypatch.setattr(NotebookClient, "setup_kernel", start)
    path = make_notebook(project / "n.ipynb")
    with pytest.raises(NotebookError, match="the kernel did not start: Kernel died"):
        run_notebook(path, output=project / "out.ipynb")
