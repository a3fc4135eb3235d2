"""The command line: ``python -m paperlib --help``. A command is a function below, which names its
options; heavy libraries are imported in it, so that help costs nothing.
"""

import argparse
import sys
from collections.abc import Callable

from paperlib import __version__
from paperlib.environment import ROOT
from paperlib.errors import NotebookError, UserError
from paperlib.processes import end_by_signals, end_with_parent

OPTIONS: dict[str, dict] = {
    "--paper": {"required": True, "help": "memory_r or meds"},
    "--method": {"required": True, "help": "a row of the paper's table"},
    "--profile": {"default": "tiny", "help": "smoke, tiny, laptop or paper (%(default)s)"},
    "--model": {"help": "of the profile (its main one)"},
    "--seed": {"type": int, "default": 0, "help": "(%(default)s)"},
    "--preset": {"default": "paper", "help": "paper or released (%(default)s)"},
    "--runs": {"default": "runs", "help": "the run store (%(default)s)"},
    "--device": {"default": "auto", "help": "auto, cpu, cuda (%(default)s)"},
    "--engine": {"default": "ours", "help": "ours or trl (%(default)s)"},
    "--vllm": {"action": "store_true",
               "help": "sample with vLLM, on the GPUs that train (engine trl)"},
    "--report-to": {"default": "tensorboard", "help": "tensorboard, trackio, wandb, several with "
                    "commas between, or none (%(default)s)"},
    "--split": {"default": "test", "help": "test or validation (%(default)s)"},
    "--checkpoints": {"default": "last", "choices": ("last", "all"), "help": "(%(default)s)"},
    "run": {"help": "the run's folder; `runs` lists them"},
    "target": {"help": "a new folder"},
    "--step": {"type": int, "help": "of the checkpoint (the last)"},
    "path": {"help": "an .ipynb file"},
    "--output": {"help": "(executed/<PROFILE>/<folder>/<name>.ipynb)"},
    "--cell-timeout": {"type": int, "help": "seconds per cell (no limit)"},
    "-p": {"dest": "parameters", "nargs": 2, "action": "append", "default": [],
           "metavar": ("NAME", "VALUE"), "help": "a parameter of the notebooks that have it; may "
           "be repeated"},
    "names": {"nargs": "*", "help": "such as table2, fig3-meds or all; none: list"},
    "--parallel": {"type": int, "default": 1, "help": "notebooks at once (%(default)s)"},
    "--force": {"action": "store_true", "help": "start although the plan names something missing"},
    "--seeds": {"default": "0,1,2", "help": "(%(default)s)"},
    "--models": {"help": "of the Table 1s, with commas between (the profile's own)"},
}  # fmt: skip
OF_A_RUN = ("--paper", "--method", "--profile", "--model", "--seed", "--preset", "--runs",
            "--device", "--engine")  # fmt: skip
PLANNED = ("PROFILE", "PRESET", "SEEDS", "MODELS", "ENGINE", "RUNS")  # parameters
PARSER = argparse.ArgumentParser(
    prog="python -m paperlib", description="Memory-R+ and MEDS, reproduced."
)
PARSER.add_argument("--version", action="version", version=f"paperlib {__version__}")
COMMANDS = PARSER.add_subparsers(required=True, metavar="command")


def command(*options: str, **other: dict) -> Callable[[Callable], Callable]:
    """Make the function a command of its name, with its docstring as help, and these options;
    ``other``: what one of them has otherwise than in OPTIONS."""
    def register(function: Callable) -> Callable:
        name, text = function.__name__.replace("_", "-"), function.__doc__
        parser = COMMANDS.add_parser(name, help=text, description=text)
        for option in options:
            parser.add_argument(option, **OPTIONS[option] | other.get(option.lstrip("-"), {}))
        parser.set_defaults(command=function)
        return function

    return register


def main(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit status: 0, 1 (a notebook or run failed), 2 (usage), 3
    (this machine lacks what the command needs) or 128 and the number of the signal that ended it.

    Without ``arguments`` it is this process's command, ended as :mod:`paperlib.processes` says.
    """
    if arguments is None:
        end_by_signals()
        end_with_parent()
    options = PARSER.parse_args(arguments)
    try:
        return options.command(options) or 0
    except (UserError, NotebookError) as error:
        print(f"error: {error}", file=sys.stderr)
        return error.status
    except KeyboardInterrupt as signal:
        print("interrupted; the same command goes on where this one stopped", file=sys.stderr)
        return 128 + (signal.args[0] if signal.args else 2)


def _run(options: argparse.Namespace):
    from paperlib.experiments.recipes import recipe
    from paperlib.experiments.store import Store

    of = options
    return Store(of.runs).run(
        recipe(of.paper, of.method, of.profile, of.seed, of.preset, of.model, of.engine)
    )


@command(*OF_A_RUN, "--vllm", "--report-to")
def train(options: argparse.Namespace) -> None:
    """train or resume one run of a paper's recipe"""
    run = _run(options)
    if options.vllm and run.config.engine != "trl":
        raise UserError("--vllm is for --engine trl; our loop samples by itself")
    more = {"vllm": True} if options.vllm else {}
    run.ensure(device=options.device, report_to=options.report_to, **more)
    print(run.folder)


@command(*OF_A_RUN, "--split", "--checkpoints")
def evaluate(options: argparse.Namespace) -> None:
    """evaluate the checkpoints of a finished run"""
    from paperlib.experiments.grid import fixed_threads
    from paperlib.experiments.jobs import Job
    from paperlib.experiments.recipes import eval_settings

    run = _run(options)
    if run.status() != "complete":
        raise UserError(f"{run.folder} is {run.status()}; train it first")
    settings = eval_settings(options.paper, options.profile, options.split, model=options.model)
    job = Job(run, (settings,), options.checkpoints, threads=1, device=options.device)
    with fixed_threads(job.threads):
        job.work()
    for step in job.steps():
        problems = run.evaluation(step, settings)["problems"]
        share = sum(p["correct"] / p["n"] for p in problems) / len(problems)
        print(f"step {step}  {settings.name}  pass@1 {share:.3f}")


@command("run", "target", "--step")
def export(options: argparse.Namespace) -> None:
    """save a run's policy as an ordinary Hugging Face folder"""
    from paperlib.rl.export import export

    print(export(options.run, options.target, options.step))


@command()
def tasks(options: argparse.Namespace) -> None:
    """print the folder of lm-eval's task files, for its --include_path"""
    from paperlib.evaluation.settings import TASKS

    print(TASKS)


@command("names", names={"metavar": "name", "help": "such as gsm8k-train; none: list"})
def data(options: argparse.Namespace) -> None:
    """list the data sets, or check some and tell what is odd about them"""
    from paperlib.tasks.data import findings, load_problems, origin, problem_count
    from paperlib.tasks.grading import unreadable_golds
    from paperlib.tasks.sources import CATALOGUE

    for name in options.names:
        print(name, *findings(name), sep="\n  ")
        unread = unreadable_golds([problem.answer for problem in load_problems(name)])
        print(f"  {len(unread)} golds that the grader compares as text only"
              + "".join(f"\n    {gold[:70]}" for gold in unread[:10]))  # fmt: skip
    lacking = []
    for source in CATALOGUE.values() if not options.names else ():
        where, lacks = origin(source)
        lacking += [lacks] if lacks else []
        count = problem_count(source.name)
        print(f"{source.name:18} {source.role:5} {count:>6,}  {where or 'not here'}")
    if lacking:
        print(f"\nSet PAPERLIB_DATA_DIR to a folder of JSONL, or go online. {lacking[0]}")


@command("--runs")
def runs(options: argparse.Namespace) -> None:
    """list the runs there are"""
    from paperlib.experiments.store import Store, folder_status

    for folder in Store(options.runs).folders():
        print(f"{folder_status(folder):9} {folder}")


@command("path", "-p", "--output", "--cell-timeout")
def notebook(options: argparse.Namespace) -> None:
    """execute a parameterised notebook"""
    from paperlib.experiments.notebooks import run_notebook
    from paperlib.experiments.parameters import parse_pairs

    parameters, timeout = parse_pairs(options.parameters), options.cell_timeout
    print(run_notebook(options.path, parameters, options.output, cell_timeout=timeout))


@command("names", "-p", "--parallel", "--force")
def reproduce(options: argparse.Namespace) -> int:
    """execute the notebooks of tables and figures by name"""
    from paperlib.experiments.artefacts import artefacts, choose, reproduce
    from paperlib.experiments.parameters import parse_pairs
    from paperlib.report.index import write_index

    if not options.names:
        for name, path in artefacts(ROOT).items():
            print(f"{name:28} {path.relative_to(ROOT)}")
        return 0
    parameters = parse_pairs(options.parameters)
    notebooks = choose(options.names, ROOT)
    # models and data of the other profiles are shipped
    if parameters.get("PROFILE") in ("laptop", "paper") and not options.force:
        given = {**parameters, "RUNS": ROOT / parameters.get("RUNS", "runs")}
        flags = [f"--{name.lower()}={given[name]}" for name in PLANNED if name in given]
        if plan(PARSER.parse_args(["plan", *options.names, *flags])):
            print("error: not started, since this machine lacks what is named above; mend it or "
                  "start all the same with --force (make: FORCE=1)", file=sys.stderr)
            return 3
    failed = reproduce(notebooks, parameters, parallel=options.parallel)
    folder = ROOT / parameters.get("FIGURES", "figures") / parameters.get("PROFILE", "tiny")
    if folder.is_dir():  # once more: notebooks that ran at once may have missed each other's
        write_index(folder)
    if failed:
        names = ", ".join(failed)
        raise NotebookError(f"{len(failed)} of {len(notebooks)} notebooks failed: {names}")
    return 0


@command("names", *(f"--{name.lower()}" for name in PLANNED),
         names={"nargs": "+", "help": "such as table1, table2-meds or all"},
         profile={"default": "paper"})  # fmt: skip
def plan(options: argparse.Namespace) -> int:
    """what artefacts need: runs, tokens, GPU hours, disk, what is missing"""
    from paperlib.experiments.artefacts import choose
    from paperlib.experiments.parameters import convert
    from paperlib.experiments.plan import make_plan
    from paperlib.experiments.store import Store

    seeds = convert("SEEDS", options.seeds, {"SEEDS": [0]})
    made = make_plan(choose(options.names, ROOT), options.profile, options.preset, seeds,
                     Store(options.runs), options.models, options.engine)  # fmt: skip
    print(made.text)
    return 3 if made.missing else 0


@command()
def tiny_model(options: argparse.Namespace) -> None:
    """rebuild the tiny world's model and encoder from scratch"""
    from paperlib.tasks.tiny.build import build

    build()


if __name__ == "__main__":
    sys.exit(main())
