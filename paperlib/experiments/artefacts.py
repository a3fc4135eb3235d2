"""Every table and figure by name: which notebook makes it, and running many of them.

The artefact ``table2-meds`` is made by ``notebooks/meds/table2.ipynb``; ``table2`` names those of
both papers, ``all`` names everything. A notebook that fails does not stop the others.
"""

import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import nbformat

from paperlib.environment import ROOT
from paperlib.errors import UserError
from paperlib.experiments.parameters import declared_parameters
from paperlib.processes import run_all, start

FOLDERS = ("memory_r", "meds", "beyond")
GRACE_SECONDS = 30.0  # for a notebook to shut down its kernel, and that its processes


def artefacts(root: Path) -> dict[str, Path]:
    """Notebook by name: Table 1s first (others read their runs), then the folders in turn, so that
    neighbours, which may run at once, seldom wait for one another's runs."""
    ranked = []
    for folder in FOLDERS:
        paths = sorted((root / "notebooks" / folder).glob("*.ipynb"), key=_natural)
        ranked += [(-1 if path.stem == "table1" else rank, path) for rank, path in enumerate(paths)]
    paths = [path for _, path in sorted(ranked, key=lambda one: one[0])]
    return {f"{path.stem}-{path.parent.name}".replace("_", "-"): path for path in paths}


def _natural(path: Path) -> list[int | str]:
    """fig2 before fig10."""
    return [int(p) if p.isdigit() else p for p in re.split(r"(\d+)", path.stem)]


def choose(names: Sequence[str], root: Path) -> dict[str, Path]:
    """The notebooks behind ``names``, in the order of :func:`artefacts`, each once."""
    known = artefacts(root)
    short = {name: path.stem.replace("_", "-") for name, path in known.items()}
    if unknown := [n for n in names if n not in {"all", *known, *short.values()}]:
        valid = ", ".join(["all", *dict.fromkeys(short.values())])
        raise UserError(f"unknown artefact {', '.join(unknown)}; valid: {valid}, or one paper's, "
                        "such as table1-meds")  # fmt: skip
    return {name: known[name] for name in known if {"all", name, short[name]} & set(names)}


def reproduce(
    notebooks: Mapping[str, Path], parameters: Mapping[str, str], *, parallel: int = 1
) -> list[str]:
    """Execute the notebooks, ``parallel`` at once, each by ``python -m paperlib notebook``; the
    names of those that failed. A parameter goes to the notebooks that declare it; nothing is
    started with one that no notebook of the project declares.
    """
    valid = set().union(*map(_declared, {**artefacts(ROOT), **notebooks}.values()))
    for name in parameters.keys() - valid:
        raise UserError(f"unknown parameter {name!r}; valid: {', '.join(sorted(valid))}")
    began: dict[str, float] = {}

    def begin(name: str, place: None) -> subprocess.Popen:
        print(f"{name}: started", file=sys.stderr, flush=True)
        began[name] = time.monotonic()
        command = [sys.executable, "-m", "paperlib", "notebook", str(notebooks[name])]
        for key in parameters.keys() & _declared(notebooks[name]):
            command += ["-p", key, parameters[key]]
        return start(command, {}, None)

    def ended(name: str, status: int) -> None:
        seconds, state = time.monotonic() - began[name], "FAILED" if status else "done"
        print(f"{name}: {state} in {seconds:.0f} s", file=sys.stderr, flush=True)

    return run_all(notebooks, [None] * parallel, begin, ended, grace_seconds=GRACE_SECONDS)


def _declared(path: Path) -> set[str]:
    try:
        return set(declared_parameters(nbformat.read(path, as_version=4), path.name))
    except Exception:  # of many kinds; the notebook's own process will tell, and the others go on
        return set()
