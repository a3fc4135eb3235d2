"""The catalogue of public data sets (sources.toml), and where each is to be had.

A set comes from the folder of JSONL that the environment variable ``PAPERLIB_DATA_DIR`` names, if
it has the ``file``, else from the hub (``repository`` at ``revision``). Files have the fields
``question`` and ``answer``, most also ``level`` and ``subject``; those of the hub are named there.
"""

import os
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from paperlib.errors import UserError

FOLDER = "PAPERLIB_DATA_DIR"  # environment variable


@dataclass(frozen=True)
class Source:
    """One data set."""

    name: str
    role: str  # "train" or "test"
    rows: int  # of the file
    file: str  # in the folder; .jsonl or .jsonl.gz, either is found
    digest: str  # of all (question, answer) pairs of the file, see data.digest
    repository: str | None = None  # on the hub; None: in no repository we know
    config: str | None = None
    split: str = "test"
    revision: str = ""  # commit of the repository
    question: str = "question"  # the hub's fields
    answer: str = "answer"
    # the answer field is a "text", a list of "spellings", ends in "hashes", or has a "box"
    gold: str = "text"
    level: str | None = None
    subject: str = "subject"
    levels: Sequence[int] = ()  # keep these levels of the hub's rows; none: all
    hub_rows: int | None = None  # where the hub's count is another
    empty: int = 0  # rows of the file without a gold answer
    licence: str = "not declared"
    note: str = ""


_TEXT = Path(__file__).with_suffix(".toml").read_text("utf-8")
CATALOGUE = {name: Source(name, **fields) for name, fields in tomllib.loads(_TEXT).items()}


def data_folder() -> str:
    """The folder of JSONL files, "" if none is named."""
    folder = os.environ.get(FOLDER, "")
    if folder and not Path(folder).is_dir():
        raise UserError(f"{FOLDER} is {folder!r}; it must name a folder of .jsonl files")
    return folder


def local_file(source: Source) -> Path | None:
    """The file of a set, if the folder has it."""
    folder, stem = data_folder(), source.file.removesuffix(".gz")
    paths = [Path(folder, stem), Path(folder, stem + ".gz")] if folder else []
    return next(filter(Path.is_file, paths), None)


def origin(source: Source) -> tuple[str, str]:
    """(where a set would come from, "") or ("", what lacks); nothing is downloaded."""
    from huggingface_hub import constants

    if path := local_file(source):
        return str(path), ""
    lacks = f"{source.name}: no {source.file} in {data_folder() or f'${FOLDER} (unset)'}, and "
    if source.repository is None:
        return "", f"{lacks}no hub repository has it"
    where = f"{source.repository} at {source.revision[:8]}"
    folder = "datasets--" + source.repository.replace("/", "--")
    if Path(constants.HF_HUB_CACHE, folder, "snapshots").is_dir():
        return f"{where} (in the hub's cache)", ""
    if why := hub_unreachable():
        return "", f"{lacks}{where}: not cached, and {why}"
    return f"{where} (to be downloaded)", ""


@cache
def hub_unreachable() -> str:
    """Why the hub cannot be reached from here, "" if it can; asked once, at most 5 seconds."""
    from huggingface_hub import constants, get_session

    if constants.HF_HUB_OFFLINE:
        return "HF_HUB_OFFLINE is set"
    try:
        get_session().head(constants.ENDPOINT, timeout=5)
    except Exception as error:  # of the HTTP library in use, of a proxy, of the network
        return f"{constants.ENDPOINT} cannot be reached ({type(error).__name__})"
    return ""


def hub_rows(source: Source) -> Iterable[Mapping[str, Any]]:
    """The rows of a set as the hub has them."""
    way = f"set {FOLDER} to a folder with {source.file} (fields question and answer)"
    if source.repository is None:
        raise UserError(f"data set {source.name!r} is in no hub repository; {way}")
    try:
        from datasets import load_dataset

        where = {"split": source.split, "revision": source.revision}
        return load_dataset(source.repository, source.config, **where)
    except Exception as error:  # of datasets, of the hub's client, of the network
        reason = (str(error).splitlines() or [""])[0]
        raise UserError(
            f"data set {source.name!r}: {source.repository} at {source.revision} cannot be loaded "
            f"from the hub ({type(error).__name__}: {reason}); go online, or {way}"
        ) from error
