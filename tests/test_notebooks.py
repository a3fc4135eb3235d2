"""Parameters are checked before a kernel starts; real kernels run in the last tests only."""

import json
import multiprocessing
import os
import sys
import threading
import time
from pathlib import Path

import nbformat
import numpy as np
import papermill
import pytest
from filelock import FileLock
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from paperlib.__main__ import main
from paperlib.errors import UserError
from paperlib.experiments.notebooks import NotebookError, find_root, parse_pairs, run_notebook
from paperlib.experiments.parameters import convert, declared_parameters

DEFAULTS = 'PROFILE = "tiny"  # a name\nSTEPS = 3\nRATE = 0.5\nFAST = False\nSEEDS = [0, 1]\n'


def make_notebook(path: Path, *sources: str, parameters: str = DEFAULTS) -> Path:
    cell = new_code_cell(parameters, metadata={"tags": ["parameters"]})
    cells = [new_markdown_cell("# title"), cell, *map(new_code_cell, sources)]
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(new_notebook(cells=cells), path)
    return path


def nested(depth: int) -> list:
    value: list = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A clone in a folder with a space and braces in its name."""
    root = tmp_path / "my {clone} here"
    root.mkdir()
    (root / "pyproject.toml").touch()
    return root


@pytest.mark.parametrize(
    ("default", "text", "value"),
    [
        (3, "7", 7),
        (3, "-1", -1),
        (0.5, "1e-6", 1e-6),
        (0.5, "2", 2.0),
        (False, "true", True),
        (False, "1", True),
        (True, "False", False),
        ("a", "007", "007"),
        ("a", "", ""),
        ([0, 1], "0,1,2", [0, 1, 2]),
        ([0, 1], "5", [5]),
        ([0, 1], "[]", []),
        ((0, 1), "[3, 4]", (3, 4)),
        (["GRPO"], "GRPO, DAPO", ["GRPO", "DAPO"]),
        ({}, "{'a': 1}", {"a": 1}),
        (None, "null", None),
        (None, "4", 4),
        (None, "word", "word"),
    ],
)
def test_a_text_becomes_the_defaults_type(default, text, value):
    result = convert("X", text, {"X": default})
    assert result == value and type(result) is type(value)


@pytest.mark.parametrize(
    ("default", "given"),
    [
        (3, "007"),
        (3, "1_000"),
        (3, "3.0"),
        (3, "None"),
        (3, True),
        (3, 3.0),
        (0.5, "nan"),
        (0.5, "fast"),
        (False, "yes"),
        (False, 1),
        ("a", 1),
        ([0, 1], "0,one"),
        ([0, 1], "0,,1"),
        ([0, 1], "0.5"),
        ([0, 1], "(0"),
        ({}, "[1]"),
        ({}, {"a": float("nan")}),
        ({}, {"a": 1, 2: 3}),  # the file sorts the keys
        ({1}, "{2}"),  # no form in a notebook's JSON
        (None, Path("a")),
        (None, np.float64(2)),
        (None, float("inf")),
        ("a", "caf\udce9"),  # a byte of the command line that is no UTF-8
        (0.5, 10**400),  # no float is so large
        (0.5, -(10**5000)),  # nor has Python a text of it
        (0.5, "1e999"),
        ([0.5], [1, 10**400]),
        ((0.5,), "1" + 400 * "0"),
        ([0.5], "nan"),
        ([[0.5]], [[float("inf")]]),
        (3, 10**5000),
        (3, "1" + 5000 * "0"),
        (None, [10**5000]),
        (None, {"a": 10**5000}),
        (None, "{[]: 1}"),
        ([0], "[" + 300 * "(" + "0"),
        ({}, "-" * 100_000 + "1"),
        (None, nested(5000)),
    ],
    ids=lambda value: str(type(value).__name__),
)
def test_a_value_of_another_type_is_refused(default, given):
    with pytest.raises(UserError, match="parameter X is .* must be a .* default"):
        convert("X", given, {"X": default})


def test_python_values_pass_and_widen():
    declared = {"RATE": 0.5, "SEEDS": [0], "PAIR": (1, 2)}
    assert convert("RATE", 1, declared) == 1.0
    assert convert("SEEDS", (1, 2), declared) == [1, 2]
    assert convert("PAIR", [3], declared) == (3,)


def test_unknown_parameter_names_the_valid_ones():
    with pytest.raises(UserError, match="unknown parameter 'SEED'; valid: SEEDS, STEPS"):
        convert("SEED", "1", {"SEEDS": [0], "STEPS": 1})


def test_declared_parameters_reads_literals_only(tmp_path):
    def declared(source):
        path = make_notebook(tmp_path / "n.ipynb", parameters=source)
        return declared_parameters(nbformat.read(path, as_version=4), "n")

    assert declared("A = -1\nB: str = 'x'\n# note\n") == {"A": -1, "B": "x"}
    for source in ("A = 1 + X", "import os", "A = B = 1", "A[0] = 1", "print(1)", "A = {[]: 1}"):
        with pytest.raises(UserError, match="not NAME = literal"):
            declared(source)
    for source in ("%matplotlib inline", "A = 1\0", f"A = {10_000 * '-'}1", f"A = {300 * '('}"):
        with pytest.raises(UserError, match="not Python"):
            declared(source)


def test_exactly_one_parameters_cell(tmp_path):
    path = tmp_path / "n.ipynb"
    nbformat.write(new_notebook(cells=[new_code_cell("A = 1")]), path)
    with pytest.raises(UserError, match="has 0 cells tagged"):
        run_notebook(path)


def test_bad_requests_fail_before_any_kernel(tmp_path, monkeypatch):
    monkeypatch.setattr("paperlib.experiments.notebooks._execute", None)  # calling it would raise
    path = make_notebook(tmp_path / "n.ipynb", "1")
    for call, message in [
        (lambda: run_notebook(tmp_path / "no.ipynb"), "is not a notebook"),
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


def test_parse_pairs_refuses_a_name_twice():
    assert parse_pairs([["A", "1"], ["B", "2"]]) == {"A": "1", "B": "2"}
    with pytest.raises(UserError, match="'A' is given twice"):
        parse_pairs([["A", "1"], ["A", "2"]])


def test_find_root_is_the_nearest_project(project):
    assert find_root(project / "notebooks" / "meds" / "n.ipynb") == project


def test_runs_here_with_this_python_and_the_given_values(project, monkeypatch, tmp_path):
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
    )
    before = dict(os.environ)
    out = run_notebook(path, {"PROFILE": "smoke", "SEEDS": "4,5", "FAST": "true"})
    assert dict(os.environ) == before
    assert out == project / "executed" / "smoke" / "meds" / "n.ipynb"
    assert sorted(p.name for p in out.parent.iterdir()) == [".n.lock", "n.ipynb"]
    executed = nbformat.read(out, as_version=4)
    text = "".join(o.text for c in executed.cells for o in c.get("outputs", []))
    assert text.splitlines() == [sys.executable, str(project), "smoke 3 0.5 True [4, 5] 0"]
    assert str(project) not in json.dumps(executed.metadata)


def test_a_failing_cell_is_named_and_a_good_output_stays(project):
    path = make_notebook(project / "notebooks" / "n.ipynb", "x = 1", "\nassert x == 2, 'not two'")
    out = project / "out" / "n.ipynb"
    out.parent.mkdir()
    out.write_text("good")
    with pytest.raises(NotebookError, match=r"cell 4 \(.assert x == 2.*AssertionError: not two"):
        run_notebook(path, output=out)
    assert out.read_text() == "good"
    assert sorted(p.name for p in out.parent.iterdir()) [1:] == ["n.failed.ipynb", "n.ipynb"]
    assert "AssertionError" in (out.parent / "n.failed.ipynb").read_text()


def test_the_cell_that_kills_the_kernel_is_named(project):
    path = make_notebook(project / "n.ipynb", "import os", "os._exit(9)", "print('never')")
    with pytest.raises(NotebookError, match=r"cell 4 \('os._exit\(9\)'\) killed the kernel"):
        run_notebook(path, output=project / "out.ipynb")
    assert not (project / "out.ipynb").exists()


def test_a_cell_that_takes_too_long_is_named(project):
    path = make_notebook(project / "n.ipynb", "import time; time.sleep(60)")
    with pytest.raises(NotebookError, match=r"cell 3 .* took longer than 1 s"):
        run_notebook(path, output=project / "out.ipynb", cell_timeout=1)


def test_leaving_early_is_a_failure_even_in_the_last_cell(project, capsys):
    path = make_notebook(project / "n.ipynb", "print('half')\nimport sys; sys.exit(0)")
    assert main(["notebook", str(path), "--output", str(project / "out.ipynb")]) == 1
    said = capsys.readouterr().err
    assert "cell 3 (\"print('half')\") ended the notebook early: SystemExit" in said
    assert not (project / "out.ipynb").exists() and (project / "out.failed.ipynb").exists()


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
    (root / ".out.partial.ipynb").write_text("left by a kill")
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
    assert left == {"n.ipynb", "out.ipynb", "pyproject.toml", ".out.lock"}


def test_two_processes_never_make_one_result(project, monkeypatch):
    monkeypatch.setattr("paperlib.experiments.notebooks._execute", None)  # calling it would raise
    path, out = make_notebook(project / "n.ipynb"), project / "out" / "n.ipynb"
    out.parent.mkdir()
    out.write_text("good")
    with FileLock(out.parent / ".n.lock"):
        with pytest.raises(UserError, match="another process is making .*n.ipynb"):
            run_notebook(path, output=out)
    assert out.read_text() == "good"


def test_two_threads_run_one_after_the_other(project, monkeypatch):
    path, running, before = make_notebook(project / "n.ipynb"), [], dict(os.environ)

    def execute(source, values, partial, *_):
        running.append(1)
        time.sleep(0.1)
        assert len(running) == 1  # the second would take the first one's environment for its own
        nbformat.write(new_notebook(), partial)
        running.pop()

    monkeypatch.setattr("paperlib.experiments.notebooks._execute", execute)
    outputs = [project / f"{i}.ipynb" for i in range(3)]
    threads = [
        threading.Thread(target=run_notebook, args=(path,), kwargs={"output": out})
        for out in outputs
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(out.exists() for out in outputs) and dict(os.environ) == before


@pytest.mark.parametrize("failures", [2, 3])
def test_a_kernel_that_does_not_start_is_started_again(project, monkeypatch, failures):
    path, tries = make_notebook(project / "n.ipynb"), []

    def start(source, partial, **_):
        tries.append(1)
        if len(tries) <= failures:
            raise RuntimeError("Kernel died before replying to kernel_info")
        nbformat.write(new_notebook(), partial.replace("{{", "{").replace("}}", "}"))

    monkeypatch.setattr(papermill, "execute_notebook", start)
    if failures == 2:
        run_notebook(path, output=project / "out.ipynb")
    else:
        with pytest.raises(NotebookError, match="did not start in 3 tries: Kernel died"):
            run_notebook(path, output=project / "out.ipynb")
    assert len(tries) == 3 and (project / "out.ipynb").exists() is (failures == 2)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_process_forked_while_a_notebook_runs_can_run_its_own(project, monkeypatch):
    path, running, forked = make_notebook(project / "n.ipynb"), threading.Event(), threading.Event()

    def execute(source, values, partial, *_):
        running.set()
        assert partial.name == ".2.partial.ipynb" or forked.wait(60)
        nbformat.write(new_notebook(), partial)

    monkeypatch.setattr("paperlib.experiments.notebooks._execute", execute)
    first, second = project / "1.ipynb", project / "2.ipynb"
    thread = threading.Thread(target=run_notebook, args=(path,), kwargs={"output": first})
    thread.start()
    assert running.wait(60)
    child = multiprocessing.get_context("fork").Process(
        target=run_notebook, args=(path,), kwargs={"output": second}
    )
    child.start()
    child.join(20)
    child.kill()
    forked.set()
    thread.join()
    assert second.exists() and child.exitcode == 0 and first.exists()
