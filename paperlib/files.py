"""Files that are either whole or not there, and JSON lines that survive a kill."""

import errno
import hashlib
import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from paperlib.errors import UserError

# what a disk says when it is full, read-only, broken or not the user's; torch keeps that to itself
_DISK = {os.strerror(number) for number in (
    errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO,
    errno.ENOTDIR,
)} | {"unexpected pos", "PytorchStreamWriter"}  # fmt: skip


@contextmanager
def disk_errors(folder: Path) -> Iterator[None]:
    """Where ``folder`` cannot be written or is removed in the block, UserError says so; other
    errors pass."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        text = str(error)
        if os.strerror(errno.ENOENT) in text and not Path(folder).exists():
            text = "it was removed while it was worked on"
        elif not any(words in text for words in _DISK):
            raise
        raise UserError(
            f"{folder} cannot be written ({text}). What was written before is kept; make room, or "
            "mend it, and run the same command again: it goes on from there"
        ) from None


@contextmanager
def written_together(paths: Sequence[Path]) -> Iterator[list[Path]]:
    """Temporary paths for files of one folder, which is made if needed; when the block ends well
    all are renamed to ``paths``, so that a reader never meets half of what belongs together."""
    folder = paths[0].parent
    folder.mkdir(parents=True, exist_ok=True)
    # beside them, since a rename is atomic only within one file system
    with tempfile.TemporaryDirectory(prefix=".", suffix=".tmp", dir=folder) as scratch:
        temporary = [Path(scratch, path.name) for path in paths]
        yield temporary
        for written, final in zip(temporary, paths, strict=True):
            os.replace(written, final)


def write_text_atomic(path: Path, text: str) -> None:
    """Write a UTF-8 file so that a reader, or a power cut, meets the old or the new content."""
    with written_together([Path(path)]) as (scratch,):
        with open(scratch, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())


def write_json_atomic(path: Path, obj: Any) -> None:
    """Like :func:`write_text_atomic`, with ``obj`` as indented JSON; a TypeError writes nothing."""
    write_text_atomic(path, json.dumps(obj, indent=1, ensure_ascii=False) + "\n")


def write_texts(folder: Path, stem: str, texts: Mapping[str, str]) -> list[Path]:
    """Write the texts, by suffix, to ``<folder>/<stem><suffix>``, all or none of them."""
    finals = [Path(folder) / f"{stem}{suffix}" for suffix in texts]
    with written_together(finals) as temporary:
        for path, text in zip(temporary, texts.values(), strict=True):
            path.write_text(text, encoding="utf-8", newline="\n")
    return finals


def by_step(paths: Iterable[Path], suffix: str = "") -> dict[int, Path]:
    """Those of the paths whose whole name is a step's, of six digits, in order of the steps: what
    a user keeps beside them, such as a copy, is no part of a run."""
    named = ((path.name.removesuffix(suffix), path) for path in paths)
    return dict(sorted(
        (int(name), path) for name, path in named
        if name.isdecimal() and name == f"{int(name):06d}"
    ))  # fmt: skip


def whole_checkpoints(run: Path) -> dict[int, Path]:
    """The folders of a run's checkpoints that have their COMPLETE mark, by step."""
    return by_step(mark.parent for mark in run.glob("checkpoints/*/COMPLETE"))


def short_hash(obj: Any) -> str:
    """Ten hex digits of the SHA-256 of JSON values; the same in every process and key order."""
    text = json.dumps(obj, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def as_json(value: Any) -> Any:
    """The value as it comes back from a JSON file (tuples as lists)."""
    return json.loads(json.dumps(value))


def read_json(path: Path) -> Any:
    """The content of a JSON file."""
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise UserError(f"{path} is not JSON ({error}); it is damaged") from error


def read_jsonl(path: Path) -> list[Any]:
    """The rows of a JSON-lines file; a missing file has none. A last line that does not end in a
    newline was cut off by a kill and is ignored."""
    rows = []
    lines = Path(path).read_bytes().split(b"\n") if Path(path).exists() else []
    for number, line in enumerate(lines[:-1], start=1):
        try:
            rows += [json.loads(line)] if line.strip() else []
        except (UnicodeDecodeError, json.JSONDecodeError) as error:
            raise UserError(f"{path}, line {number} is not JSON ({error})") from error
    return rows
