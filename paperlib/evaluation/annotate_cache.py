"""What was annotated, on disk: each answer once, appended as it comes; half a line never counts."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from filelock import FileLock

from paperlib.evaluation.annotate_api import Annotation
from paperlib.evaluation.annotate_prompts import Task
from paperlib.files import read_json, read_jsonl, write_json_atomic


class Cache:
    """``<task>-v<version>-<model>.jsonl``, one answer a line, and the batches under way."""

    def __init__(self, folder: Path | str, model: str, task: Task) -> None:
        stem = re.sub(r"[^\w.-]", "_", f"{task.name}-v{task.version}-{model}")
        self.path = Path(folder) / f"{stem}.jsonl"
        self._batches = Path(folder) / f"{stem}.batches.json"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Two processes never pay for the same item. Half a line, left by a kill, is cut off."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(self.path.with_suffix(".lock")):
            data = self.path.read_bytes() if self.path.exists() else b""
            if not data.endswith(b"\n") and data:
                os.truncate(self.path, data.rfind(b"\n") + 1)
            yield

    def read(self) -> dict[str, Annotation]:
        """All answers there are, by key."""
        return {row.pop("key"): Annotation(**row) for row in read_jsonl(self.path)}

    def save(self, key: str, answer: Annotation) -> None:
        """Append one answer, at once and to the disk."""
        row = json.dumps({"key": key, **asdict(answer)})
        with open(self.path, "a", encoding="ascii", newline="\n") as file:
            file.write(row + "\n")
            file.flush()
            os.fsync(file.fileno())

    def batches(self) -> list[dict[str, Any]]:
        """The batches under way."""
        return read_json(self._batches) if self._batches.exists() else []

    def put(self, batch: dict[str, Any]) -> None:
        """Add a batch, or renew the entry of the same items."""
        others = [b for b in self.batches() if b["keys"] != batch["keys"]]
        write_json_atomic(self._batches, [*others, batch])

    def drop(self, batch: dict[str, Any]) -> None:
        """Forget a batch whose answers are all saved."""
        others = [b for b in self.batches() if b["keys"] != batch["keys"]]
        write_json_atomic(self._batches, others)
