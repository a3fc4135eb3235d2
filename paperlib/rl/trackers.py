"""Where a run's metrics go besides metrics.jsonl: TensorBoard, trackio, Weights & Biases.

``report_to`` names them, with commas between; it changes no result and is not part of a config.
The default writes TensorBoard's files into the run's folder. trackio keeps a local database unless
its own environment variables (TRACKIO_SPACE_ID, ...) say otherwise; wandb sends to its service
(WANDB_MODE=offline: not yet). Nothing is sent unless one of the two is named.
"""

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from paperlib.errors import UserError, check_choice
from paperlib.files import read_json, short_hash

TRACKERS = ("tensorboard", "trackio", "wandb")  # each is the name of its package, too


def check_trackers(report_to: str) -> tuple[str, ...]:
    """The names in ``report_to``, each once; "none" or an empty text: none."""
    names = tuple(dict.fromkeys(n.strip() for n in report_to.split(",") if n.strip()))
    if names == ("none",):
        return ()
    for name in names:
        check_choice("report_to", name, TRACKERS)
        if find_spec(name) is None:
            raise UserError(f"report_to names {name}, which is not installed: pip install {name}")
    return names


def open_tracker(name: str, folder: Path, start: int) -> Any:
    """What has ``log(metrics, step=...)`` and ``finish()``, for a run that has done ``start``
    steps. A resumed run goes on under its old name, one that was deleted and trained anew has a
    new one: the name tells when the folder was made."""
    if name == "tensorboard":
        return _TensorBoard(folder, start)
    title = f"{folder.name}-{short_hash(read_json(folder / 'environment.json'))}"
    own = {"id": title, "dir": str(folder)} if name == "wandb" else {}
    config = read_json(folder / "config.json")
    return import_module(name).init(
        project="paperlib", name=title, resume="allow", config=config, **own
    )


class _TensorBoard:
    def __init__(self, folder: Path, start: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        # steps after the checkpoint are trained again: their points go
        self._writer = SummaryWriter(str(folder / "tensorboard"), purge_step=start + 1)
        self.finish = self._writer.close

    def log(self, metrics: dict[str, float], step: int) -> None:
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, step)
