"""Token rows of different length as one batch."""

import torch
from torch import Tensor


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
