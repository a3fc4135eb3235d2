"""The command line, in this process; recipes and training are replaced where they are called."""

import runpy
import subprocess
import sys

import pytest
from test_notebooks import make_notebook
from test_store import SETTINGS, fake_train, make_config

from paperlib import __version__
from paperlib.__main__ import main
from paperlib.environment import ROOT
from paperlib.errors import NotebookError, UserError
from paperlib.experiments import notebooks


@pytest.fixture
def recipes(monkeypatch):
    """Recipes for one method, a stand-in for training and one for evaluating."""
    import paperlib.evaluation.harness as harness
    import paperlib.experiments.recipes as module
    import paperlib.rl.train as train

    def recipe(paper, method, profile, seed, preset="paper", model=None, engine="ours"):
        if method != "DAPO":
            raise UserError(f"unknown method {method!r}; valid: DAPO")
        return make_config(seed, paper=paper, profile=profile, preset=preset)

    def evaluate(checkpoint, settings, **kwargs):
        problems = [{"n": 4, "correct": 1}, {"n": 4, "correct": 2}]
        return {"settings": settings.to_dict(), "problems": problems}

    monkeypatch.setattr(module, "recipe", recipe)
    monkeypatch.setattr(module, "eval_settings", lambda *cell, model: SETTINGS)
    monkeypatch.setattr(train, "train", fake_train)
    monkeypatch.setattr(harness, "evaluate", evaluate)


def run_arguments(command, folder, *more):
    arguments = [command, "--paper", "meds", "--method", "DAPO", "--profile", "smoke"]
    return [*arguments, "--runs", str(folder), "--device", "cpu", *more]


def test_train_list_evaluate(tmp_path, recipes, capsys):
    arguments = ["train", "--paper", "meds", "--method", "PPO", "--runs", str(tmp_path)]
    assert main(arguments) == 2
    assert capsys.readouterr().err == "error: unknown method 'PPO'; valid: DAPO\n"
    assert list(tmp_path.iterdir()) == []
    assert main(run_arguments("evaluate", tmp_path)) == 2
    assert "is missing; train it first" in capsys.readouterr().err
    assert main(run_arguments("train", tmp_path, "--seed", "3")) == 0
    folder = tmp_path / "smoke" / make_config(3).name
    assert capsys.readouterr().out == f"{folder}\n"
    assert main(["runs", "--runs", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"complete  {folder}\n"
    assert main(run_arguments("evaluate", tmp_path, "--seed", "3", "--checkpoints", "all")) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines == [f"step {step}  {SETTINGS.name}  pass@1 0.375" for step in (2, 4)]


def test_notebook_arguments(tmp_path, monkeypatch, capsys):
    path = make_notebook(tmp_path / "n.ipynb", "1")
    assert main(["notebook", str(path), "-p", "STEPS", "x"]) == 2
    assert "parameter STEPS is 'x'" in capsys.readouterr().err

    def failing(path, parameters, output, *, cell_timeout):
        assert parameters == {"STEPS": "4", "FAST": "true"} and cell_timeout == 9
        raise NotebookError(f"cell 2 of {path} to {output}")

    monkeypatch.setattr(notebooks, "run_notebook", failing)
    more = ["-p", "STEPS", "4", "-p", "FAST", "true", "--output", "o.ipynb", "--cell-timeout", "9"]
    assert main(["notebook", "n.ipynb", *more]) == 1
    assert capsys.readouterr().err == "error: cell 2 of n.ipynb to o.ipynb\n"


HEAVY = (
    "torch", "transformers", "datasets", "lm_eval", "sympy", "trl", "accelerate", "numpy", "scipy",
    "pandas", "matplotlib", "nbclient", "sklearn", "hdbscan", "sentence_transformers",
)  # fmt: skip


def test_nothing_heavy_is_imported_for_help():
    code = ("from paperlib.__main__ import PARSER; PARSER.format_help(); import sys; "
            f"sys.exit(', '.join(set(sys.modules) & set({HEAVY})))")  # fmt: skip
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stderr == "\n"  # the names of those that were


def test_version_and_usage(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["--version"])
    assert stop.value.code == 0 and capsys.readouterr().out == f"paperlib {__version__}\n"
    for arguments in ([], ["train"], ["dance"]):
        with pytest.raises(SystemExit) as stop:
            main(arguments)
        assert stop.value.code == 2


def test_the_environment_check_names_what_differs(tmp_path):
    check = runpy.run_path(str(ROOT / ".ci" / "check_env.py"))["problems"]
    lock = tmp_path / "lock"
    lock.write_text(f"# note\npytest=={pytest.__version__}\nno-such-thing==1 ; os_name == 'x'\n")
    assert check(lock) == []
    lock.write_text("pytest==0.1\nno-such-thing==1\n")
    assert check(lock) == [f"pytest is {pytest.__version__}, not 0.1", "no-such-thing is missing"]
