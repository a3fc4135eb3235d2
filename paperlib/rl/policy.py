"""Loading a policy: the tiny model, a checkpoint folder, or a model of the hub."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from paperlib.errors import UserError
from paperlib.tasks.tiny import MODEL_DIR


def resolve_device(device: str = "auto") -> torch.device:
    """``auto`` is CUDA where there is one, else the CPU. Raises UserError for an absent device."""
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        resolved = torch.device(device)
    except RuntimeError as error:
        raise UserError(f"unknown device {device!r}; valid: auto, cpu, cuda, cuda:0") from error
    if resolved.type == "cuda" and not torch.cuda.is_available():
        raise UserError(f"device {device!r} was asked for, but torch sees no CUDA device")
    return resolved


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """No progress bar of transformers for loading or saving: it would break up ours."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def load_policy(name: str | Path, device: str | torch.device = "cpu") -> tuple[Any, Any]:
    """``(model, tokenizer)`` with float32 weights on ``device``, in eval mode.

    Args:
        name: ``tiny`` (shipped), a folder with weights and tokenizer, or a hub id.

    Raises:
        UserError: nothing can be loaded under this name, or the tokenizer has no chat template.
    """
    from transformers import AutoModelForCausalLM, AutoTokenizer

    source = MODEL_DIR if name == "tiny" else name
    try:
        with quiet_transformers():
            tokenizer = AutoTokenizer.from_pretrained(source)
            model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32)
    except (OSError, ValueError) as error:
        raise UserError(
            f"cannot load model {str(name)!r}: {str(error).splitlines()[0]} "
            "(valid: 'tiny', a folder with weights and tokenizer, or a hub id that is cached or "
            "can be downloaded)"
        ) from error
    if not tokenizer.chat_template:
        raise UserError(f"the tokenizer of {str(name)!r} has no chat template: use a chat model")
    for parameter in model.parameters():
        # Loaded weights lie where the file has them; the CPU's matrix products may round by
        # alignment, and a resumed run must be bit-identical to one that never stopped.
        parameter.data = parameter.data.clone()
    return model.to(device).eval(), tokenizer


def end_tokens(model: Any, tokenizer: Any) -> set[int]:
    """All token ids that end a completion, from generation config and tokenizer."""
    ids = model.generation_config.eos_token_id
    listed = ids if isinstance(ids, list) else [ids]
    return {i for i in (*listed, tokenizer.eos_token_id) if i is not None}


def pad_token(tokenizer: Any) -> int:
    """The padding token, or the end token for tokenizers without one (it is always masked)."""
    return tokenizer.eos_token_id if tokenizer.pad_token_id is None else tokenizer.pad_token_id
