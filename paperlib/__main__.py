"""The command line: ``python -m paperlib --help``. A command is a function below, whose parameters
are options of options.toml; heavy libraries are imported in it, so that help costs nothing."""

import argparse
import inspect
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

from paperlib import __version__
from paperlib.environment import ROOT
from paperlib.errors import NotebookError, UserError
from paperlib.processes import end_by_signals, end_with_stdin

PLANNED = ("PROFILE", "PRESET", "SEEDS", "MODELS", "ENGINE", "RUNS")  # parameters
OPTIONS = tomllib.loads(Path(__file__).with_name("options.toml").read_text(encoding="utf-8"))
FLAGS = {flag.lstrip("-").replace("-", "_"): flag for flag in OPTIONS}  # by parameter
PARSER = argparse.ArgumentParser(
    prog="python -m paperlib", description="Memory-R+ and MEDS, reproduced."
)
PARSER.add_argument("--version", action="version", version=f"paperlib {__version__}")
COMMANDS = PARSER.add_subparsers(required=True, metavar="command")


def command(function: Callable) -> Callable:
    """Make the function a command of its name, with its docstring as help and its parameters as
    options."""
    name, text = function.__name__.replace("_", "-"), function.__doc__
    parser = COMMANDS.add_parser(name, help=text, description=text)
    parser.register("type", "int", int)
    for flag in (FLAGS[parameter] for parameter in inspect.signature(function).parameters):
        parser.add_argument(flag, **OPTIONS[flag] | OPTIONS.get(name, {}).get(flag, {}))
    parser.set_defaults(command=function)
    return function


def main(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit status: 0, 1 (a notebook or run failed), 2 (usage), 3
    (this machine lacks what the command needs) or 128 and the number of the signal that ended it.

    Without ``arguments`` it is this process's command, ended as :mod:`paperlib.processes` says.
    """
    if arguments is None:
        end_by_signals()
        end_with_stdin()
    options = vars(PARSER.parse_args(arguments))
    try:
        return options.pop("command")(**options) or 0
    except (UserError, NotebookError) as error:
        print(f"error: {error}", file=sys.stderr)
        return error.status
    except KeyboardInterrupt as signal:
        print("interrupted; the same command goes on where this one stopped", file=sys.stderr)
        return 128 + (signal.args[0] if signal.args else 2)


@command
def train(
    paper, method, profile, model, seed, preset, runs, device, engine, vllm, report_to
) -> None:
    """train or resume one run of a paper's recipe"""
    from paperlib.experiments.recipes import recipe
    from paperlib.experiments.store import Store

    run = Store(runs).run(recipe(paper, method, profile, seed, preset, model, engine))
    if vllm and engine != "trl":
        raise UserError("--vllm is for --engine trl; our loop samples by itself")
    run.ensure(device=device, report_to=report_to, **({"vllm": True} if vllm else {}))
    print(run.folder)


@command
def evaluate(
    paper, method, profile, model, seed, preset, runs, device, engine, split, checkpoints
) -> None:
    """evaluate the checkpoints of a finished run"""
    from paperlib.experiments.grid import fixed_threads
    from paperlib.experiments.jobs import Job
    from paperlib.experiments.recipes import eval_settings, recipe
    from paperlib.experiments.store import Store

    run = Store(runs).run(recipe(paper, method, profile, seed, preset, model, engine))
    if run.status() != "complete":
        raise UserError(f"{run.folder} is {run.status()}; train it first")
    settings = eval_settings(paper, profile, split, model=model)
    job = Job(run, (settings,), checkpoints, threads=1, device=device)
    with fixed_threads(job.threads):
        job.work()
    for _, step in job.checkpoints():
        problems = run.evaluation(step, settings)["problems"]
        share = sum(p["correct"] / p["n"] for p in problems) / len(problems)
        print(f"step {step}  {settings.name}  pass@1 {share:.3f}")


@command
def export(run, target, step) -> None:
    """save a run's policy as an ordinary Hugging Face folder"""
    from paperlib.rl.export import export

    print(export(run, target, step))


@command
def tasks() -> None:
    """print the folder of lm-eval's task files, for its --include_path"""
    from paperlib.evaluation.settings import TASKS

    print(TASKS)


@command
def data(names) -> None:
    """list the data sets, or check some and tell what is odd about them"""
    from paperlib.tasks.data import findings, load_problems, problem_count
    from paperlib.tasks.grading import unreadable_golds
    from paperlib.tasks.sources import CATALOGUE, origin

    for name in names:
        print(name, *findings(name), sep="\n  ")
        unread = unreadable_golds([problem.answer for problem in load_problems(name)])
        print(f"  {len(unread)} golds that the grader compares as text only"
              + "".join(f"\n    {gold[:70]}" for gold in unread[:10]))  # fmt: skip
    lacking = []
    for source in CATALOGUE.values() if not names else ():
        where, lacks = origin(source)
        lacking += [lacks] if lacks else []
        count = problem_count(source.name)
        print(f"{source.name:18} {source.role:5} {count:>6,}  {where or 'not here'}")
    if lacking:
        print(f"\nSet PAPERLIB_DATA_DIR to a folder of JSONL, or go online. {lacking[0]}")


@command
def runs(runs) -> None:
    """list the runs there are"""
    from paperlib.experiments.store import Store, folder_status

    for folder in Store(runs).folders():
        print(f"{folder_status(folder):9} {folder}")


@command
def notebook(path, p, output, cell_timeout) -> None:
    """execute a parameterised notebook"""
    from paperlib.experiments.notebooks import run_notebook
    from paperlib.experiments.parameters import parse_pairs

    print(run_notebook(path, parse_pairs(p), output, cell_timeout=cell_timeout))


@command
def reproduce(names, p, parallel, force) -> int:
    """execute the notebooks of tables and figures by name"""
    from paperlib.experiments.artefacts import artefacts, choose, reproduce
    from paperlib.experiments.parameters import parse_pairs
    from paperlib.report.verdict import write_index

    if not names:
        for name, path in artefacts(ROOT).items():
            print(f"{name:28} {path.relative_to(ROOT)}")
        return 0
    parameters = parse_pairs(p)
    notebooks = choose(names, ROOT)
    # models and data of the other profiles are shipped
    if parameters.get("PROFILE") in ("laptop", "paper") and not force:
        given = {**parameters, "RUNS": ROOT / parameters.get("RUNS", "runs")}
        flags = [f"--{name.lower()}={given[name]}" for name in PLANNED if name in given]
        if (status := main(["plan", *names, *flags])) == 3:
            print("error: not started, since this machine lacks what is named above; mend it or "
                  "start all the same with --force (make: FORCE=1)", file=sys.stderr)
        if status:
            return status
    failed = reproduce(notebooks, parameters, parallel=parallel)
    folder = ROOT / parameters.get("FIGURES", "figures") / parameters.get("PROFILE", "tiny")
    if folder.is_dir():  # once more: notebooks that ran at once may have missed each other's
        write_index(folder)
    if failed:
        raise NotebookError(
            f"{len(failed)} of {len(notebooks)} notebooks failed: {', '.join(failed)}"
        )
    return 0


@command
def decide(profile, most, jobs, runs) -> None:
    """add seeds to the primary claims until each is decided"""
    from paperlib.experiments.store import Store
    from paperlib.report.primary import decide

    folder = ROOT / "figures" / profile
    for one in decide(Store(runs), folder, profile, most=most, jobs=jobs):
        print(f"{one.seeds:2} seeds  {one.verdict:24}  {one.claim.name}  {one.found or ''}")
    print(folder / "primary.md")


@command
def plan(names, profile, preset, seeds, models, engine, runs) -> int:
    """what artefacts need: runs, tokens, GPU hours, disk, what is missing"""
    from paperlib.experiments.artefacts import choose
    from paperlib.experiments.parameters import convert
    from paperlib.experiments.plan import make_plan
    from paperlib.experiments.store import Store

    seeds = convert("SEEDS", seeds, {"SEEDS": [0]})
    text, missing = make_plan(
        choose(names, ROOT), profile, preset, seeds, Store(runs), models, engine
    )
    print(text)
    return 3 if missing else 0


@command
def tiny_model() -> None:
    """rebuild the tiny world's model and encoder from scratch"""
    from paperlib.tasks.tiny.build import build

    build()


if __name__ == "__main__":
    sys.exit(main())
