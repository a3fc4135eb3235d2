"""The catalogue of public data sets, from sources.toml.

Every set comes from a folder of JSONL (``file``) or from the hub (``repository`` at ``revision``).
Files have the fields ``question`` and ``answer``, most also ``level`` and ``subject``; hub
repositories have fields of their own, named there.
"""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


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
    subject: str | None = None
    levels: Sequence[int] = ()  # keep these levels of the hub's rows; none: all
    hub_rows: int | None = None  # where the hub's count is another
    empty: int = 0  # rows of the file without a gold answer
    licence: str = "not declared"
    note: str = ""


_TEXT = Path(__file__).with_suffix(".toml").read_text("utf-8")
CATALOGUE = {name: Source(name, **fields) for name, fields in tomllib.loads(_TEXT).items()}
