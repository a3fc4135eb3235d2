"""Keys and values while sampling: a cache that grows in blocks, and how many rows of it fit."""

import os

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.cache_utils import DynamicLayer

from paperlib.errors import UserError

CACHE_BLOCK = 16  # tokens of room by which the cache grows at least; a quarter of what it holds
GPU_SHARE = 1 / 2  # of the free memory for keys and values; logits and a growing layer need more
CPU_BYTES = 4 << 30  # for them on the CPU: several times what the small profiles need
CACHE_TOKENS = "PAPERLIB_CACHE_TOKENS"  # environment variable: it changes no result, so no run


class BlockLayer(DynamicLayer):
    """Keys and values of one decoder layer in buffers with room for the next tokens."""

    length = 0

    def update(self, key_states: Tensor, value_states: Tensor, *args, **kwargs):
        """Append ``[rows, heads, new, head_dim]``; return views of all keys and all values."""
        start, self.length = self.length, self.length + key_states.shape[2]
        if not self.is_initialized:
            self.is_initialized = True
            self.keys, self.values = key_states[:, :, :0], value_states[:, :, :0]
        if self.length > self.keys.shape[2]:
            room = self.length + max(CACHE_BLOCK, self.length // 4) - self.keys.shape[2]
            # zeros, not empty: the room is never read, but NaN in it must never be possible
            self.keys = torch.nn.functional.pad(self.keys, (0, 0, 0, room))
            self.values = torch.nn.functional.pad(self.values, (0, 0, 0, room))
        self.keys[:, :, start : self.length] = key_states
        self.values[:, :, start : self.length] = value_states
        return self.keys[:, :, : self.length], self.values[:, :, : self.length]

    def get_seq_length(self) -> int:
        return self.length

    def keep_rows(self, rows: Tensor) -> None:
        """Make row ``i`` what was row ``rows[i]``: repeats rows and drops rows."""
        # several times as fast on the CPU as keys[rows]
        self.keys, self.values = self.keys.index_select(0, rows), self.values.index_select(0, rows)


def rows_at_once(rows: int, length: int, token_bytes: int, free: float | None) -> int:
    """How many of ``rows`` completions are sampled together, so that their keys and values fit.

    ``length`` are the tokens of the longest prompt with a full completion, ``token_bytes`` those of
    a token in all layers, ``free`` those of the GPU's free memory, None on the CPU;
    ``PAPERLIB_CACHE_TOKENS`` in the environment, the tokens that may be held at once, goes before.
    """
    asked = os.environ.get(CACHE_TOKENS)
    if asked and not (asked.isdecimal() and int(asked)):
        raise UserError(f"{CACHE_TOKENS} is {asked!r}; it must be a whole number of at least 1")
    room = CPU_BYTES if free is None else GPU_SHARE * free
    tokens = int(asked) if asked else int(room / token_bytes)
    return min(rows, max(1, tokens // length))


def token_bytes(model: PreTrainedModel) -> int:
    """Bytes of a token's keys and values in all layers; at most, where few heads have them."""
    config = model.config.get_text_config()
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return 2 * config.num_hidden_layers * heads * size * model.dtype.itemsize


def free_bytes(device: torch.device) -> int | None:
    """Of a GPU, with what torch holds for later use; None on the CPU."""
    if device.type != "cuda":
        return None
    held = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return torch.cuda.mem_get_info(device)[0] + held
