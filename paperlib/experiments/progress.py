"""Progress of a grid: a bar for people, a status file for whoever runs the notebook.

``PAPERLIB_PROGRESS=0`` turns bars off; ``PAPERLIB_STATUS=<file>`` has the state written there: so
the notebook runner shows it on the terminal instead of in the executed notebook.
"""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType


class Progress:
    """A context manager around the runs of one grid."""

    def __init__(self, total: int, done: int) -> None:
        self.total, self.done = total, done
        self.running = ""
        status = os.environ.get("PAPERLIB_STATUS")
        self._file = Path(status) if status else None
        self._bar = None
        if os.environ.get("PAPERLIB_PROGRESS") != "0":
            from tqdm.auto import tqdm

            self._bar = tqdm(total=total, initial=done, unit="run", dynamic_ncols=True)

    def show(self, running: list[str]) -> None:
        """Name what runs now."""
        text = ", ".join(running)
        if text == self.running:
            return
        self.running = text
        if self._bar is not None:
            self._bar.set_postfix_str(text)
        if self._file is not None:
            self._file.write_text(f"{self.done}/{self.total} runs; {text}\n", encoding="utf-8")

    def advance(self) -> None:
        """One more run is over."""
        self.done += 1
        if self._bar is not None:
            self._bar.update()

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.close()
