"""The evaluation tasks of the profiles, and the data behind them."""

import re
import tomllib
from pathlib import Path

from paperlib.evaluation.settings import TASKS as TASK_FILES

_TEXT = Path(__file__).with_suffix(".toml").read_text("utf-8")
TASKS = tomllib.loads(_TEXT)  # profile -> paper -> split -> task, samples
BENCHMARKS: dict[str, str] = TASKS.pop("headings")  # task -> heading of its column


def task_data(task: str) -> tuple[str, ...]:
    """The data sets of an evaluation task, of several joined by ``+`` in their order."""
    files = [TASK_FILES / f"{one}.yaml" for one in task.split("+")]
    return tuple(re.search(r"dataset: (\S+)", file.read_text("utf-8"))[1] for file in files)
