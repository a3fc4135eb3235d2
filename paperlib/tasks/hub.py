"""Data sets of the hub: their rows, and whether they can be had without loading them."""

from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from paperlib.errors import UserError
from paperlib.tasks.sources import Source


def hub_rows(source: Source, way: str) -> Iterable[Mapping[str, Any]]:
    """The rows of a set as the hub has them; ``way`` tells how else to get it."""
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


@cache
def hub_state(repository: str) -> tuple[bool, str]:
    """Whether a data repository of the hub can be had, and how or why not."""
    from huggingface_hub import constants

    folder = Path(constants.HF_HUB_CACHE, f"datasets--{repository.replace('/', '--')}", "snapshots")
    if folder.is_dir():
        return True, "in the hub's cache"
    why = hub_unreachable()
    return not why, f"not cached, and {why}" if why else "to be downloaded"


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
