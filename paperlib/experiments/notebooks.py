"""Run a parameterised notebook as a program, with papermill's conventions.

- Exactly one cell is tagged ``parameters`` and holds ``NAME = literal`` lines only. An unknown
  name or a value of another type stops before any cell runs; the values come in a cell after it.
- The kernel is the Python that runs this, whatever kernels and profiles a person has installed.
- The working folder is the clone's root, so that ``runs/`` is the same for every notebook.
- The result appears under its name, whole, when every cell ran; a failed copy lies beside it.
"""

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import nbformat
import papermill
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient.exceptions import CellTimeoutError, DeadKernelError
from papermill.clientwrap import PapermillNotebookClient
from papermill.engines import Engine, papermill_engines
from papermill.translators import PythonTranslator, papermill_translators

from paperlib.errors import NotebookError, UserError
from paperlib.experiments.parameters import convert, declared_parameters
from paperlib.experiments.progress import STATUS
from paperlib.files import write_text_atomic


class _Literals(PythonTranslator):
    """``repr``: convert() has seen that it reads back as the same value."""

    translate = repr


class _OwnKernel(Engine):
    """papermill's own engine, but for the kernel and what it is started with."""

    @classmethod
    def execute_managed_notebook(cls, nb_man, kernel_name, client, start, **_: Any) -> None:
        PapermillNotebookClient(nb_man, **client).execute(**start)


papermill_translators.register("python", _Literals)
papermill_engines.register("own kernel", _OwnKernel)


def run_notebook(
    path: Path | str, parameters: Mapping[str, Any] | None = None,
    output: Path | str | None = None, *, cell_timeout: int | None = None,
) -> Path:
    """Execute a notebook and return where the executed one lies.

    Args:
        parameters: by name; see :func:`paperlib.experiments.parameters.convert`.
        output: default ``<root>/executed/<PROFILE>/<notebook's folder>/<name>.ipynb``. Of a
            NotebookError ``<name>.failed.ipynb`` beside it tells; an earlier good one stays.
        cell_timeout: seconds that one cell may take; None = no limit.
    """
    path = Path(path).resolve()
    try:
        notebook = nbformat.read(path, as_version=4)
    except Exception as error:  # nbformat raises many kinds
        raise UserError(f"{path} cannot be read as a notebook, an .ipynb file: {error}") from error
    declared = declared_parameters(notebook, path.name)
    values = {name: convert(name, value, declared) for name, value in (parameters or {}).items()}
    marks = ("pyproject.toml", "Makefile")
    root = next((f for f in path.parents if any((f / mark).exists() for mark in marks)),
                path.parent)  # fmt: skip
    profile = str(values.get("PROFILE", declared.get("PROFILE", "default")))
    target = Path(output or root / "executed" / profile / path.parent.name / path.name).resolve()
    if target == path or target.suffix != ".ipynb":
        raise UserError(f"the output {target} is the notebook itself or does not end in .ipynb; "
                        "give another path")  # fmt: skip
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"the folder of the output {target} cannot be made: {error}") from error
    with tempfile.TemporaryDirectory(prefix="paperlib-") as scratch:
        problem, executed = _execute(notebook, values, scratch, root, cell_timeout, path.name)
    failed = target.with_name(f"{target.stem}.failed.ipynb")
    write_text_atomic(failed if problem else target, nbformat.writes(executed) + "\n")
    if problem:
        raise NotebookError(f"{path.name}: {problem}\nThe failed copy is {failed}")
    failed.unlink(missing_ok=True)  # it tells of an older state
    return target


def _execute(
    notebook: Any, values: dict[str, Any], scratch: str, root: Path, cell_timeout: int | None,
    name: str,
) -> tuple[str | None, Any]:
    """Run all cells by papermill, in a kernel of its own: what went wrong, or None, and the
    executed notebook."""
    result, terminal = Path(scratch, "executed.ipynb"), os.dup(2)
    client = {
        "km": AsyncKernelManager(
            kernel_name="python3",
            kernel_spec_manager=KernelSpecManager(kernel_dirs=[]),  # this very Python's
            # by files: of several kernels that start at once, two may want one port
            transport="ipc" if len(scratch) < 80 else "tcp",  # the system bounds such a name
            connection_file=f"{scratch}/kernel.json",
        ),
        "timeout": cell_timeout, "startup_timeout": 300,
        "coalesce_streams": True,  # a bar of 3,000 lines is one output and its last line
        "extra_arguments": ["--log-level=CRITICAL"],  # being shut down is no error
    }  # fmt: skip
    start = {"cwd": str(root), "pass_fds": (terminal,), "cleanup_kc": True, "env": {
        **os.environ,
        "IPYTHONDIR": f"{scratch}/ipython",  # no start-up scripts of a person's
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",  # figures into the file
        "PYTHONPATH": os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH")])),
        "PAPERLIB_PROGRESS": "0",  # no bars in the file, our own
        "TQDM_DISABLE": "1",  # or others'
        STATUS: f"{os.getpid()} {terminal} {name}",
    }}  # fmt: skip
    problem = ended = None
    try:
        papermill.execute_notebook(
            notebook, result, values, kernel_name="python3", language="python",
            progress_bar=False, engine_name="own kernel", client=client, start=start,
        )  # fmt: skip
    except papermill.PapermillExecutionError as error:
        problem = f"{_cell(error.cell_index, error.source)} raised {error.ename}: {error.evalue}"
    except DeadKernelError:
        ended = "killed the kernel (out of memory?)"
    except CellTimeoutError:
        ended = f"took longer than {cell_timeout} s"
    except RuntimeError as error:
        problem = f"the kernel did not start: {error}"
    finally:
        os.close(terminal)
    if result.exists():
        notebook = nbformat.read(result, as_version=4)
    for key in ("input_path", "output_path"):  # this machine's folders
        notebook.metadata.get("papermill", {}).pop(key, None)
    ran = [(index, cell) for index, cell in enumerate(notebook.cells)
           if cell.metadata.get("papermill", {}).get("start_time")]  # fmt: skip
    for output in [output for _, cell in ran for output in cell.get("outputs", [])]:
        if output.get("ename") == "SystemExit":  # papermill takes sys.exit(0) for a good end
            ended = f"raised SystemExit: {output.evalue}"
    if ended:
        index, last = ran[-1]
        problem = f"{_cell(index, last.source)} {ended}"
        last.outputs.append(nbformat.v4.new_output("stream", name="stderr", text=ended))
    return problem, notebook


def _cell(index: int, source: str) -> str:
    first = next((line for line in source.splitlines() if line.strip()), "")
    return f"cell {index + 1} ({first.strip()[:60]!r})"
