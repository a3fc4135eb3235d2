"""What computed a result: commit, versions, machine."""

import os
import platform
import re
import subprocess
import sys
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from paperlib import __version__

ROOT = Path(__file__).resolve().parent.parent  # the clone, where there is one
PACKAGES = (
    "torch", "transformers", "tokenizers", "trl", "lm-eval", "sentence-transformers", "hdbscan",
    "scikit-learn", "numpy", "pandas",
)  # fmt: skip


def environment_record(device: str | None = None) -> dict[str, Any]:
    """JSON values that tell what computes here, for a run's ``environment.json``; a GPU, such as
    device ``"cuda:0"``, by its name."""
    torch = sys.modules.get("torch")  # whoever computes on a GPU has it imported
    if torch and device and device.startswith("cuda"):
        device = torch.cuda.get_device_name(device)
    return {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "paperlib": __version__,
        **git_state(),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in PACKAGES},
        "machine": {
            "system": platform.platform(),
            "cpu": _cpu_model(),
            "cores": available_cores(),
            "device": device or "cpu",
        },
    }


def git_state(root: Path = ROOT) -> dict[str, Any]:
    """``{"commit": hash or None, "dirty": bool or None}`` of the clone at ``root``; None where that
    is no clone, though it may lie in one, as an installed package in some project's .venv does."""
    commit = mark = None
    if (root / ".git").exists():
        command = ["git", "-C", root, "describe", "--always", "--dirty", "--abbrev=40",
                   "--exclude=*"]  # fmt: skip
        with suppress(OSError, subprocess.SubprocessError):
            found = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
            commit, _, mark = found.stdout.strip().partition("-")
    return {"commit": commit, "dirty": None if commit is None else mark == "dirty"}


def available_cores() -> int:
    """The cores this process may use, which a container can make fewer than the machine's."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def launcher_rank() -> int:
    """Which of a launcher's processes this one is (torchrun's numbering); 0 without a launcher."""
    return int(os.environ.get("RANK", "0"))


def _cpu_model() -> str:
    file = Path("/proc/cpuinfo")  # of Linux
    found = re.search(r"^model name\s*: (.*)$", file.read_text(), re.M) if file.exists() else None
    return found[1] if found else platform.processor() or platform.machine()
