"""Checkpoints that are whole or not there, and hold all that a run needs to go on.

    checkpoints/000015/   weights, tokenizer, state.pt (all but the weights), COMPLETE

COMPLETE is a JSON map of file name to SHA-256, written before the folder gets its final name.
Every checkpoint keeps its weights for evaluation; only the newest two keep ``state.pt``, so that
there is one to fall back on if the newest is damaged.
"""

import hashlib
import json
import os
import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open

from paperlib.errors import UserError
from paperlib.files import read_jsonl, whole_checkpoints

STATES_KEPT = 2
# state.pt is ours; the others are what the TRL engine's trainer keeps beside the weights
STATE_FILES = (
    "optimizer*", "scheduler.pt", "rng_state*.pth", "global_step*", "latest", "zero_to_fp32.py",
    "pytorch_model_fsdp*", "state.pt",
)


def save_checkpoint(run: Path, step: int, model: Any, tokenizer: Any, state: dict) -> None:
    """Write, verify, then name a checkpoint; only then drop state.pt of old ones. If anything
    fails, older checkpoints are as they were, and the new one is not there."""
    scratch = run / "checkpoints" / f".{step:06d}.tmp"
    shutil.rmtree(scratch, ignore_errors=True)  # left by a kill
    run.mkdir(exist_ok=True)
    scratch.parent.mkdir(exist_ok=True)
    with dropped_unless_whole(scratch):
        scratch.mkdir()
        model.save_pretrained(scratch)
        tokenizer.save_pretrained(scratch)
        save_state(scratch, state)
        seal(run, scratch, step)


@contextmanager
def dropped_unless_whole(scratch: Path) -> Iterator[None]:
    """Remove an unfinished checkpoint when the block fails: a full disk must not stay full."""
    try:
        yield
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise


def save_state(folder: Path, state: dict) -> None:
    """Write ``state.pt`` into a checkpoint that is not sealed yet, and read it back."""
    torch.save(state, folder / "state.pt")
    try:
        load_state(folder)
    except Exception as error:
        raise UserError(
            f"the state of step {state['step']} cannot be read back ({error}); state_dict() of a "
            "reward term may hold tensors, numbers, strings, lists, tuples and dicts only"
        ) from error


def seal(run: Path, scratch: Path, step: int) -> None:
    """Give the checkpoint in ``scratch`` its mark and its name; then drop the state of old ones."""
    for path in scratch.glob("*.safetensors"):
        try:
            with safe_open(path, "pt"):  # reads the header and holds it against the file's length
                pass
        except Exception as error:
            raise UserError(f"the weights of step {step} cannot be read back ({error})") from error
    files = sorted(p for p in scratch.rglob("*") if p.is_file())
    digests = {path.relative_to(scratch).as_posix(): _sha256(path) for path in files}
    mark = scratch / "COMPLETE"
    mark.write_text(json.dumps(digests, indent=1))
    for path in (*files, mark):
        with path.open("rb+") as file:
            os.fsync(file.fileno())
    target = run / "checkpoints" / f"{step:06d}"
    if target.exists():  # a step that was trained again after falling back to an older checkpoint
        shutil.rmtree(target)
    os.replace(scratch, target)
    with_state = [p for p in whole_checkpoints(run).values() if (p / "state.pt").exists()]
    for old in with_state[:-STATES_KEPT]:
        with suppress(ValueError):  # COMPLETE is damaged
            for name in sorted(filter(_is_state, _digests(old)), key="state.pt".__eq__):  # it last
                (old / name).unlink(missing_ok=True)
                with suppress(OSError):  # the folder is not empty
                    (old / name).parent.rmdir()


def newest_checkpoint(run: Path, save_steps: int) -> Path | None:
    """The checkpoint to resume from, its files verified; None if there is none yet, which after
    ``save_steps`` steps is an error: a run never silently starts again."""
    *older, newest = [None, *whole_checkpoints(run).values()]
    anew = f"start the run from the beginning, delete or move the run's folder {run}"
    if newest is None:
        done = max((row["step"] for row in read_jsonl(run / "metrics.jsonl")), default=0)
        if done > save_steps:  # the line of save_steps itself may be older than its checkpoint
            raise UserError(
                f"{run} has {done} steps in metrics.jsonl but no whole checkpoint, although one is "
                f"written every {save_steps} steps. Nothing was deleted. Put them back, with their "
                f"COMPLETE marks. To {anew}"
            )
    elif bad := damaged_files(newest):
        usable = [int(p.name) for p in older[1:] if (p / "state.pt").exists()]
        what = f"resume from step {usable[-1]}, delete the folder {newest}" if usable else anew
        raise UserError(
            f"checkpoint {newest} is damaged ({', '.join(bad)}). Nothing was deleted. To {what} "
            "and run the same command again"
        )
    return newest


def damaged_files(checkpoint: Path, *, state: bool = True) -> list[str]:
    """Which of the files in COMPLETE, without ``state`` of the policy's, are not as written."""
    try:
        return [
            name for name, digest in _digests(checkpoint).items()
            if (state or not _is_state(name)) and _sha256(checkpoint / name) != digest
        ]  # fmt: skip
    except (OSError, ValueError, AttributeError) as error:
        return [str(error)]


def check_policy(checkpoint: Path) -> list[str]:
    """The names of weights, tokenizer and config, once they were held against COMPLETE; old
    checkpoints hold nothing else."""
    if bad := damaged_files(checkpoint, state=False):
        raise UserError(
            f"checkpoint {checkpoint} is damaged ({', '.join(bad)}), and what it is worth cannot "
            "be told. Put a copy back, or delete or move the run's folder to train it anew"
        )
    return [name for name in _digests(checkpoint) if not _is_state(name)]


def _digests(checkpoint: Path) -> dict[str, str]:
    return json.loads((checkpoint / "COMPLETE").read_text())


def _is_state(name: str) -> bool:
    return any(fnmatch(name.partition("/")[0], kind) for kind in STATE_FILES)


def load_state(checkpoint: Path) -> dict[str, Any]:
    """The content of ``state.pt``; no code in it can run (``weights_only``)."""
    return torch.load(checkpoint / "state.pt", weights_only=True, map_location="cpu")


def rng_state(device: torch.device) -> dict[str, Any]:
    """States of the global generators of python, numpy and torch, as plain values and tensors; of
    GPUs, of ``device`` alone: the run may go on where others are visible."""
    kind, keys, *rest = np.random.get_state()
    state: dict[str, Any] = {
        "python": random.getstate(),
        "numpy": (kind, keys.tolist(), *rest),
        "torch": torch.get_rng_state(),
    }
    if device.type == "cuda":
        state["cuda"] = torch.cuda.get_rng_state(device)
    return state


def restore_rng(state: dict[str, Any], device: torch.device) -> None:
    """Put back what :func:`rng_state` took."""
    random.setstate(state["python"])
    kind, keys, *rest = state["numpy"]
    np.random.set_state((kind, np.array(keys, dtype=np.uint32), *rest))
    torch.set_rng_state(state["torch"])
    if "cuda" in state and device.type == "cuda":
        saved = state["cuda"]
        if isinstance(saved, list):  # of earlier versions: one of each GPU that was visible
            saved = saved[min(device.index or 0, len(saved) - 1)]
        torch.cuda.set_rng_state(saved, device)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
