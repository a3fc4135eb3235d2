"""The command line: ``python -m paperlib --help``.

Heavy libraries are imported by the commands that need them, so that help costs nothing.
"""

from __future__ import annotations

import argparse
import sys

from paperlib import __version__
from paperlib.errors import UserError
from paperlib.processes import end_by_signals, end_with_parent

OPTIONS: dict[str, dict] = {  # of several commands, or with more to say than a name
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
    "--output": {"help": "(executed/<PROFILE>/<folder>/<name>.ipynb)"},
    "--cell-timeout": {"type": int, "help": "seconds per cell (no limit)"},
    "-p": {"dest": "parameters", "nargs": 2, "action": "append", "default": [],
           "metavar": ("NAME", "VALUE"), "help": "a parameter of the notebooks that have it; may "
           "be repeated"},
    "--parallel": {"type": int, "default": 1, "help": "notebooks at once (%(default)s)"},
    "--force": {"action": "store_true", "help": "start although the plan names something missing"},
    "--seeds": {"default": "0,1,2", "help": "(%(default)s)"},
    "--models": {"help": "of the Table 1s, with commas between (the profile's own)"},
}  # fmt: skip
OF_A_RUN = ("--paper", "--method", "--profile", "--model", "--seed", "--preset", "--runs",
            "--device", "--engine")  # fmt: skip


def main(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit status: 0, 1 (a notebook or run failed), 2 (usage), 3
    (this machine lacks what the command needs) or 128 and the number of the signal that ended it.

    Without ``arguments`` it is this process's command, ended as :mod:`paperlib.processes` says.
    """
    if arguments is None:
        end_by_signals()
        end_with_parent()
    options = build_parser().parse_args(arguments)
    try:
        return options.command(options) or 0
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt as signal:
        print("interrupted; the same command goes on where this one stopped", file=sys.stderr)
        return 128 + (signal.args[0] if signal.args else 2)


def build_parser() -> argparse.ArgumentParser:
    """One sub-command per function below."""
    parser = argparse.ArgumentParser(
        prog="python -m paperlib", description="Memory-R+ and MEDS, reproduced."
    )
    parser.add_argument("--version", action="version", version=f"paperlib {__version__}")
    commands = parser.add_subparsers(required=True, metavar="command")

    def add(name: str, function, text: str, *options: str) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=text, description=text)
        for option in options:
            command.add_argument(option, **OPTIONS[option])
        command.set_defaults(command=function)
        return command

    add("train", _train, "train or resume one run of a paper's recipe", *OF_A_RUN, "--vllm",
        "--report-to")  # fmt: skip
    add("evaluate", _evaluate, "evaluate the checkpoints of a finished run", *OF_A_RUN, "--split",
        "--checkpoints")  # fmt: skip

    export = add("export", _export, "save a run's policy as an ordinary Hugging Face folder")
    export.add_argument("run", help="the run's folder; `runs` lists them")
    export.add_argument("target", help="a new folder")
    export.add_argument("--step", type=int, help="of the checkpoint (the last)")

    add("tasks", _tasks, "print the folder of lm-eval's task files, for its --include_path")

    data = add("data", _data, "list the data sets, or check some and tell what is odd about them")
    data.add_argument("names", nargs="*", metavar="name", help="such as gsm8k-train; none: list")

    add("runs", _runs, "list the runs there are", "--runs")

    notebook = add("notebook", _notebook, "execute a parameterised notebook", "-p", "--output",
                   "--cell-timeout")  # fmt: skip
    notebook.add_argument("path", help="an .ipynb file")
    reproduce = add("reproduce", _reproduce, "execute the notebooks of tables and figures by name",
                    "-p", "--parallel", "--force")  # fmt: skip
    reproduce.add_argument("names", nargs="*", help="such as table2, fig3-meds or all; none: list")
    plan = add("plan", _plan, "what artefacts need: runs, tokens, GPU hours, disk, what is missing",
               "--profile", "--preset", "--seeds", "--models", "--engine", "--runs")  # fmt: skip
    plan.add_argument("names", nargs="+", help="such as table1, table2-meds or all")
    plan.set_defaults(profile="paper")

    add("tiny-model", _tiny_model, "rebuild the tiny world's model and encoder from scratch")
    return parser


def _run(options: argparse.Namespace):
    from paperlib.experiments.recipes import recipe
    from paperlib.experiments.store import Store

    config = recipe(
        options.paper, options.method, options.profile, options.seed, options.preset, options.model,
        options.engine,
    )
    return Store(options.runs).run(config)


def _train(options: argparse.Namespace) -> None:
    run = _run(options)
    if options.vllm and run.config.engine != "trl":
        raise UserError("--vllm is for --engine trl; our loop samples by itself")
    more = {"vllm": True} if options.vllm else {}
    run.ensure(device=options.device, report_to=options.report_to, **more)
    print(run.folder)


def _evaluate(options: argparse.Namespace) -> None:
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


def _export(options: argparse.Namespace) -> None:
    from paperlib.rl.export import export

    print(export(options.run, options.target, options.step))


def _tasks(options: argparse.Namespace) -> None:
    from paperlib.evaluation.lm_tasks import TASKS

    print(TASKS)


def _data(options: argparse.Namespace) -> None:
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


def _runs(options: argparse.Namespace) -> None:
    from paperlib.experiments.store import Store, folder_status

    for folder in Store(options.runs).folders():
        print(f"{folder_status(folder):9} {folder}")


def _notebook(options: argparse.Namespace) -> int:
    from paperlib.experiments.notebooks import NotebookError, run_notebook
    from paperlib.experiments.parameters import parse_pairs

    parameters, timeout = parse_pairs(options.parameters), options.cell_timeout
    try:
        print(run_notebook(options.path, parameters, options.output, cell_timeout=timeout))
    except NotebookError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _reproduce(options: argparse.Namespace) -> int:
    from paperlib.environment import ROOT
    from paperlib.experiments.artefacts import artefacts, choose, reproduce
    from paperlib.experiments.parameters import parse_pairs
    from paperlib.report.index import write_index

    if not options.names:
        for name, path in artefacts(ROOT).items():
            print(f"{name:28} {path.relative_to(ROOT)}")
        return 0
    parameters = parse_pairs(options.parameters)
    notebooks = choose(options.names, ROOT)
    if not options.force and (lacking := _lacking(list(notebooks), parameters)):
        print(lacking, file=sys.stderr)
        return 3
    failed = reproduce(notebooks, parameters, parallel=options.parallel)
    folder = ROOT / parameters.get("FIGURES", "figures") / parameters.get("PROFILE", "tiny")
    if folder.is_dir():  # once more: notebooks that ran at once may have missed each other's
        write_index(folder)
    if failed:
        print(f"error: {len(failed)} of {len(notebooks)} notebooks failed: {', '.join(failed)}",
              file=sys.stderr)
    return bool(failed)


def _lacking(names: list[str], parameters: dict[str, str]) -> str:
    """The plan of what cannot start here, "" if all can; profiles that are shipped always can."""
    from paperlib.environment import ROOT
    from paperlib.experiments.plan import CHECKED

    given = {"PROFILE": "tiny", "PRESET": "paper", "SEEDS": "0,1,2", "ENGINE": "ours",
             "RUNS": "runs", "MODELS": None, **parameters}  # fmt: skip
    if given["PROFILE"] not in CHECKED:
        return ""
    plan = _planned(names, given["PROFILE"], given["PRESET"], given["SEEDS"], ROOT / given["RUNS"],
                    given["MODELS"], given["ENGINE"])  # fmt: skip
    if not plan.missing:
        return ""
    return (
        f"{plan.text}\n\nerror: not started, since this machine lacks what is named above; mend it "
        "or start all the same with --force (make: FORCE=1)"
    )


def _plan(options: argparse.Namespace) -> int:
    from paperlib.environment import ROOT
    from paperlib.experiments.artefacts import choose

    plan = _planned(list(choose(options.names, ROOT)), options.profile, options.preset,
                    options.seeds, options.runs, options.models, options.engine)  # fmt: skip
    print(plan.text)
    return 3 if plan.missing else 0


def _planned(names, profile, preset, seeds: str, runs, models, engine):
    from paperlib.experiments.parameters import convert
    from paperlib.experiments.plan import make_plan
    from paperlib.experiments.store import Store

    numbers = convert("SEEDS", seeds, {"SEEDS": [0]})
    return make_plan(names, profile, preset, numbers, Store(runs), models, engine)


def _tiny_model(options: argparse.Namespace) -> None:
    from paperlib.tasks.tiny.build import build

    build()


if __name__ == "__main__":
    sys.exit(main())
