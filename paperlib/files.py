"""Files that are either whole or not there, and JSON lines that survive a kill."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

from paperlib.errors import UserError


def write_text_atomic(path: Path, text: str) -> None:
    """Write a UTF-8 file so that a reader, or a power cut, meets the old or the new content.

    Missing folders are made. The temporary file lies beside the target, since a rename is atomic
    only within one file system.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_umask())  # mkstemp's 0600 would hide results from a group
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def write_json_atomic(path: Path, obj: Any) -> None:
    """Like :func:`write_text_atomic`, with ``obj`` as indented JSON.

    Raises:
        TypeError: ``obj`` holds something that JSON has no form for (then nothing is written).
    """
    write_text_atomic(path, json.dumps(obj, indent=1, ensure_ascii=False) + "\n")


def read_json(path: Path) -> Any:
    """The content of a JSON file. Raises UserError, naming the file, if it is not JSON."""
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise UserError(f"{path} is not JSON ({error}); it is damaged") from error


def read_jsonl(path: Path) -> list[Any]:
    """The rows of a JSON-lines file; a missing file has none.

    A last line that does not end in a newline was cut off by a kill and is ignored.

    Raises:
        UserError: any other line is not JSON; names the line.
    """
    path = Path(path)
    if not path.exists():
        return []
    rows = []
    lines = path.read_bytes().split(b"\n")
    for number, line in enumerate(lines[:-1], start=1):
        if not line.strip():
            continue
        try:
            rows.append(json.loads(line))
        except (UnicodeDecodeError, json.JSONDecodeError) as error:
            raise UserError(f"{path}, line {number} is not JSON ({error})") from error
    return rows


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
