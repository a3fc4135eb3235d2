"""Token rows of different length as one batch, and what attention is told about them."""

from __future__ import annotations

import torch
from torch import Tensor
from transformers import PreTrainedModel


def left_padded(
    rows: list[list[int]], pad_token_id: int, device: torch.device
) -> tuple[Tensor, Tensor, Tensor]:
    """Rows that end together, so that what follows starts at one place: ``input_ids``,
    ``attention_mask`` (1 for real tokens) and ``position_ids`` (from 0 at each row's first real
    token), each ``[n, longest]`` int64 on ``device``."""
    width = max(map(len, rows))
    input_ids = torch.full((len(rows), width), pad_token_id)
    attention_mask = torch.zeros(len(rows), width, dtype=torch.long)
    for i, ids in enumerate(rows):
        input_ids[i, width - len(ids) :] = torch.tensor(ids)
        attention_mask[i, width - len(ids) :] = 1
    position_ids = (attention_mask.cumsum(1) - 1).clamp(min=0)
    return input_ids.to(device), attention_mask.to(device), position_ids.to(device)


def takes_prepared_mask(model: PreTrainedModel) -> bool:
    """Whether one mask does for all layers: no sliding windows, and attention by SDPA."""
    config = model.config.get_text_config()
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    return (
        config._attn_implementation == "sdpa" and kinds == {"full_attention"}
        and not getattr(config, "sliding_window", None)
    )


def as_numbers(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """A mask of bools as SDPA adds it to the scores: 0 where True, else minus infinity.

    On the CPU SDPA would do this in every layer; on CUDA it is left to the kernel.
    """
    if mask.device.type != "cpu":
        return mask
    return torch.zeros(mask.shape, dtype=dtype).masked_fill_(~mask, float("-inf"))
