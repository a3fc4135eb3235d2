"""Run a parameterised notebook as a program, with papermill's conventions.

- Exactly one cell is tagged ``parameters`` and holds ``NAME = literal`` lines only. An unknown
  name or a value of another type stops before any cell runs; the values come in a cell after it.
- The kernel is the Python that runs this, whatever kernels and profiles a person has installed.
- The working folder is the clone's root, so that ``runs/`` is the same for every notebook.
- The result appears under its name, whole, when every cell ran; a failed copy lies beside it.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paperlib.errors import UserError
from paperlib.experiments.parameters import convert, declared_parameters
from paperlib.experiments.progress import STATUS
from paperlib.files import write_text_atomic


class NotebookError(RuntimeError):
    """A cell failed; the message names the notebook, the cell, the error and the failed copy."""


def run_notebook(
    path: Path | str, parameters: Mapping[str, Any] | None = None,
    output: Path | str | None = None, *, cell_timeout: int | None = None, quiet: bool = False,
) -> Path:
    """Execute a notebook and return where the executed one lies.

    Args:
        parameters: by name. A text is read as the declared default's type (see
            :func:`paperlib.experiments.parameters.convert`); other values must have that type.
        output: default ``<root>/executed/<PROFILE>/<notebook's folder>/<name>.ipynb``.
        cell_timeout: seconds that one cell may take; None = no limit.
        quiet: keep the state of grids in the notebook off the terminal.

    Raises:
        UserError: before anything runs.
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
    if values:
        _inject(notebook, values)
    problem = _execute(notebook, root, cell_timeout, "" if quiet else path.name)
    failed = target.with_name(f"{target.stem}.failed.ipynb")
    write_text_atomic(failed if problem else target, nbformat.writes(notebook))
    if problem:
        raise NotebookError(f"{path.name}: {problem}\nThe failed copy is {failed}")
    failed.unlink(missing_ok=True)  # it tells of an older state
    return target


def find_root(notebook: Path) -> Path:
    """The nearest folder above with a Makefile or pyproject.toml, else the notebook's own."""
    for folder in notebook.parents:
        if (folder / "pyproject.toml").exists() or (folder / "Makefile").exists():
            return folder
    return notebook.parent


def _inject(notebook: Any, values: dict[str, Any]) -> None:
    from nbformat.v4 import new_code_cell

    source = "\n".join(f"{name} = {value!r}" for name, value in values.items())
    tagged = ["parameters" in cell.metadata.get("tags", []) for cell in notebook.cells]
    cell = new_code_cell(source, metadata={"tags": ["injected-parameters"]})
    notebook.cells.insert(tagged.index(True) + 1, cell)


def _execute(notebook: Any, root: Path, cell_timeout: int | None, shown_as: str) -> str | None:
    """Run all cells in place, in a kernel of its own. Returns what went wrong, or None."""
    from jupyter_client.kernelspec import KernelSpecManager
    from jupyter_client.manager import AsyncKernelManager
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
    from nbformat.v4 import new_output

    with tempfile.TemporaryDirectory(prefix="paperlib-") as scratch:
        kernel = AsyncKernelManager(
            kernel_name="python3",
            kernel_spec_manager=KernelSpecManager(kernel_dirs=[]),  # this very Python's
            # by files: of several kernels that start at once, two may want one port
            transport="ipc" if len(scratch) < 80 else "tcp",  # the system bounds such a file's name
            connection_file=f"{scratch}/kernel.json",
        )
        client = NotebookClient(
            notebook, km=kernel, timeout=cell_timeout, startup_timeout=300,
            coalesce_streams=True,  # a bar of 3,000 lines is one output and its last line
            extra_arguments=["--log-level=CRITICAL"],  # being shut down is no error
        )  # fmt: skip
        terminal = os.dup(2)
        environment = {
            **os.environ,
            "IPYTHONDIR": f"{scratch}/ipython",  # no start-up scripts of a person's
            "MPLBACKEND": "module://matplotlib_inline.backend_inline",  # figures into the file
            "PYTHONPATH": os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH")])),
            "PAPERLIB_PROGRESS": "0",  # no bars in the file, our own
            "TQDM_DISABLE": "1",  # or others'
            STATUS: f"{os.getpid()} {terminal} {shown_as}" if shown_as else "",
        }
        try:
            with client.setup_kernel(
                cwd=str(root), env=environment, pass_fds=(terminal,), cleanup_kc=True
            ):
                for index, cell in enumerate(notebook.cells):
                    try:
                        client.execute_cell(cell, index)
                    except CellExecutionError as error:
                        problem = f"raised {error.ename}: {error.evalue}"
                    except DeadKernelError:
                        problem = "killed the kernel (out of memory?)"
                    except CellTimeoutError:
                        problem = f"took longer than {cell_timeout} s"
                    else:
                        continue
                    cell.outputs.append(new_output("stream", name="stderr", text=problem))
                    first = next((line for line in cell.source.splitlines() if line.strip()), "")
                    return f"cell {index + 1} ({first.strip()[:60]!r}) {problem}"
        except RuntimeError as error:
            return f"the kernel did not start: {error}"
        finally:
            os.close(terminal)
    return None
