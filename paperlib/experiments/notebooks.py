"""Run a parameterised notebook as a program: papermill, with what it leaves open decided.

- Exactly one cell is tagged ``parameters`` and holds ``NAME = literal`` lines only. An unknown
  name or a value of another type stops before any cell runs (papermill warns, and goes on).
- The kernel is the Python that runs this, whatever kernels a person has installed.
- The working folder is the clone's root, so that ``runs/`` is the same for every notebook.
- Values arrive as what they are: papermill would write a tuple as a text.
- The result appears under its name only when every cell ran; a failed copy lies beside it. Two
  processes never work on one result.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from paperlib.errors import UserError
from paperlib.experiments.parameters import convert, declared_parameters

STATUS_SECONDS = 5.0  # how often the state of a grid inside the notebook is looked at
STARTS = 3  # of a kernel; several that start at once may want the same port
# one notebook at a time in a process, since kernels take its environment; by the process's id,
# since a fork would inherit the lock of a thread that it does not have
_RUNNING: dict[int, threading.Lock] = {}


class NotebookError(RuntimeError):
    """A cell failed; the message names the notebook, the cell, the error and the failed copy."""


def run_notebook(
    path: Path | str,
    parameters: Mapping[str, Any] | None = None,
    output: Path | str | None = None,
    *,
    cell_timeout: int | None = None,
    quiet: bool = False,
) -> Path:
    """Execute a notebook and return where the executed one lies.

    Args:
        parameters: by name. A text is read as the declared default's type (see
            :func:`paperlib.experiments.parameters.convert`); other values must have that type.
        output: default ``<root>/executed/<PROFILE>/<notebook's folder>/<name>.ipynb``.
        cell_timeout: seconds that one cell may take; None = no limit.
        quiet: print nothing on stderr.

    Raises:
        UserError: before anything runs: no such notebook, not one parameters cell, an unknown
            parameter, a value of the wrong type, an executed notebook, an output that is the
            notebook itself or in work by another process.
        NotebookError: a cell raised, timed out or killed the kernel. ``<name>.failed.ipynb``
            beside the output shows how far it came; an earlier good output stays.
    """
    import nbformat

    path = Path(path).resolve()
    if path.suffix != ".ipynb" or not path.is_file():
        raise UserError(f"{path} is not a notebook; give the path of an .ipynb file")
    try:
        notebook = nbformat.read(path, as_version=4)
    except Exception as error:  # nbformat raises many kinds
        raise UserError(f"{path} cannot be read as a notebook: {error}") from error
    declared = declared_parameters(notebook, path.name)
    values = {name: convert(name, value, declared) for name, value in (parameters or {}).items()}
    root = find_root(path)
    profile = str(values.get("PROFILE", declared.get("PROFILE", "default")))
    target = Path(output) if output else root / "executed" / profile / path.parent.name / path.name
    target = target.resolve()
    if target == path:
        raise UserError(f"the output {target} is the notebook itself; give another path")
    if target.suffix != ".ipynb":
        raise UserError(f"the output {target} does not end in .ipynb")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"the folder of the output {target} cannot be made: {error}") from error
    partial = target.with_name(f".{target.stem}.partial.ipynb")
    failed = target.with_name(f"{target.stem}.failed.ipynb")
    with _RUNNING.setdefault(os.getpid(), threading.Lock()), _sole_writer(target):
        partial.unlink(missing_ok=True)  # left by a kill
        try:
            with _own_kernel(root) as status_file, _status_shown(status_file, path.name, quiet):
                problem = _execute(path, values, partial, root, cell_timeout)
            if partial.exists():
                _strip_paths(partial, path.relative_to(root))
            if problem:
                if partial.exists():
                    os.replace(partial, failed)
                raise NotebookError(f"{path.name}: {problem}\nThe failed copy is {failed}")
            os.replace(partial, target)
            failed.unlink(missing_ok=True)  # it tells of an older state
        finally:
            partial.unlink(missing_ok=True)
    return target


@contextmanager
def _sole_writer(target: Path) -> Iterator[None]:
    """Refuse a result that another process is making; a kill frees it."""
    try:
        with FileLock(target.with_name(f".{target.stem}.lock"), blocking=False):
            yield
    except Timeout as error:
        raise UserError(
            f"another process is making {target}; wait until it has ended, or give another output"
        ) from error


def find_root(notebook: Path) -> Path:
    """The nearest folder above with a Makefile or pyproject.toml, else the notebook's own."""
    for folder in notebook.parents:
        if (folder / "pyproject.toml").exists() or (folder / "Makefile").exists():
            return folder
    return notebook.parent


def _execute(
    path: Path, values: dict[str, Any], partial: Path, root: Path, cell_timeout: int | None
) -> str | None:
    """Run all cells, writing ``partial`` after each. Returns what went wrong, or None."""
    import nbformat
    import papermill
    from nbclient.exceptions import CellTimeoutError, DeadKernelError
    from papermill.translators import PythonTranslator, papermill_translators

    class Literals(PythonTranslator):
        """``repr``: convert() has seen that it reads back as the same value."""

        translate = repr

    papermill_translators.register("python", Literals)
    for start in range(1, STARTS + 1):
        try:
            papermill.execute_notebook(
                _literal(path),
                _literal(partial),
                parameters=values,
                kernel_name="python3",
                language="python",  # else a notebook without language metadata is refused
                cwd=str(root),
                progress_bar=False,
                start_timeout=300,  # of a kernel on a busy machine
                execution_timeout=cell_timeout,
                coalesce_streams=True,  # a bar of 3,000 lines is one output and its last line
            )
            break
        except papermill.PapermillExecutionError as error:
            return f"{_cell(error.cell_index, error.source)} raised {error.ename}: {error.evalue}"
        except (DeadKernelError, CellTimeoutError) as error:
            # papermill calls all cells completed then; the one that died is the last one started
            cells = nbformat.read(partial, as_version=4).cells if partial.exists() else []
            started = [i for i, cell in enumerate(cells) if _start_time(cell)]
            where = _cell(started[-1], cells[started[-1]].source) if started else "the first cell"
            if isinstance(error, CellTimeoutError):
                return f"{where} took longer than {cell_timeout} s"
            return f"{where} killed the kernel (out of memory?)"
        except RuntimeError as error:  # of a kernel that did not start; no cell ran
            if start == STARTS:
                return f"the kernel did not start in {STARTS} tries: {error}"
    for index, cell in enumerate(nbformat.read(partial, as_version=4).cells):
        # papermill takes sys.exit(0) for a good end, whatever was left to do
        if any(output.get("ename") == "SystemExit" for output in cell.get("outputs", [])):
            return f"{_cell(index, cell.source)} ended the notebook early: SystemExit"
    return None


def _literal(path: Path) -> str:
    """papermill formats paths with the parameters; braces in a folder's name are no fields."""
    return str(path).replace("{", "{{").replace("}", "}}")


def _strip_paths(executed: Path, name: Path) -> None:
    """Keep this machine's folders out of what papermill notes in the file."""
    import nbformat

    notebook = nbformat.read(executed, as_version=4)
    record = notebook.metadata.get("papermill", {})
    record["input_path"] = name.as_posix()
    record.pop("output_path", None)
    nbformat.write(notebook, executed)


def _start_time(cell: Any) -> str | None:
    return cell.metadata.get("papermill", {}).get("start_time")


def _cell(index: int, source: str) -> str:
    first = next((line for line in source.splitlines() if line.strip()), "")
    return f"cell {index + 1} ({first.strip()[:60]!r})"


@contextmanager
def _own_kernel(root: Path) -> Iterator[Path]:
    """Make ``python3`` this very Python for as long as it lasts; yields the status file's path.

    A kernelspec named python3 in a person's home folder would win otherwise, and start-up scripts
    in their IPython profile would run first.
    """
    from ipykernel.kernelspec import get_kernel_dict

    with tempfile.TemporaryDirectory(prefix="paperlib-kernel-") as name:
        folder = Path(name)
        command = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        # it warns of unencrypted talk, which is loopback's, and calls being shut down an error
        command.append("--log-level=CRITICAL")
        spec = {**get_kernel_dict(), "argv": command}
        (folder / "kernels" / "python3").mkdir(parents=True)
        (folder / "kernels" / "python3" / "kernel.json").write_text(json.dumps(spec))
        status_file = folder / "status"
        changed = {
            "JUPYTER_PATH": os.pathsep.join(filter(None, [name, os.environ.get("JUPYTER_PATH")])),
            "IPYTHONDIR": str(folder / "ipython"),
            "PAPERLIB_PROGRESS": "0",  # no bars in the file, our own
            "TQDM_DISABLE": "1",  # or others'
            "PAPERLIB_STATUS": str(status_file),
            "PYTHONPATH": os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH")])),
            "MPLBACKEND": "module://matplotlib_inline.backend_inline",  # figures into the file
        }
        before = {key: os.environ.get(key) for key in changed}
        os.environ.update(changed)
        try:
            yield status_file
        finally:
            for key, value in before.items():
                if value is None:
                    os.environ.pop(key, None)
                else:
                    os.environ[key] = value


@contextmanager
def _status_shown(status_file: Path, name: str, quiet: bool) -> Iterator[None]:
    """Print the state of a grid inside the notebook on stderr, each time the number changes."""
    stop = threading.Event()

    def watch() -> None:
        shown = ""
        while not stop.wait(STATUS_SECONDS):
            text = status_file.read_text(encoding="utf-8").strip() if status_file.exists() else ""
            if text and text != shown:
                print(f"{name}: {text}", file=sys.stderr, flush=True)
                shown = text

    thread = threading.Thread(target=watch, daemon=True)
    if not quiet:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        if not quiet:
            thread.join()


def parse_pairs(pairs: list[list[str]]) -> dict[str, str]:
    """``-p name value`` pairs of a command line. Raises UserError if a name comes twice."""
    values: dict[str, str] = {}
    for name, value in pairs:
        if name in values:
            raise UserError(f"parameter {name!r} is given twice")
        values[name] = value
    return values
