"""An attention function of ours, for any decoder of transformers whose attention can be chosen.

The completions of a group share their prompt, and rows of different lengths need no padding in the
linear layers. A *layout* tells which tokens belong together; it is given to the model's forward
pass, which hands it to the attention of each layer, and everything else is the model's own. Without
a layout attention is PyTorch's, as it is for all models that :func:`takes_layouts` turns down.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

from paperlib.rl.policy import in_eval_mode

NAME = "paperlib"
OTHER_KINDS = ("sliding_window", "softcap", "s_aux")  # what some models ask of their attention


def attention(module, query, key, value, attention_mask, *, layout=None, scaling=None, **more):
    """transformers' interface: ``[b, heads, tokens, d]`` in, ``[b, tokens, heads, d]`` out."""
    if layout is None:
        return sdpa_attention_forward(
            module, query, key, value, attention_mask, scaling=scaling, **more
        )
    if any(more.get(name) is not None for name in OTHER_KINDS):
        raise ValueError("a layout is for attention to all tokens")
    return layout(module.layer_idx, query, key, value, scaling, more.get("dropout", 0.0)), None


AttentionInterface.register(NAME, attention)
AttentionMaskInterface.register(NAME, sdpa_mask)


def takes_layouts(model: PreTrainedModel) -> bool:
    """Whether layouts change nothing but the work; tried once, on a few tokens, and remembered.

    No: models with sliding windows, biases of their own on the scores (ALiBi), capped scores, or
    an attention that cannot be chosen. A model that does is given :func:`attention` for good.
    """
    if not hasattr(model, "layouts_tried"):
        model.layouts_tried = True
        with torch.no_grad(), torch.autocast(model.device.type, enabled=False), in_eval_mode(model):
            _try_layouts(model)
    return model.config._attn_implementation == NAME  # unless somebody has chosen another since


def _try_layouts(model: PreTrainedModel) -> None:
    config, decoder = model.config, model.base_model
    if set(getattr(config, "layer_types", None) or ["full_attention"]) != {"full_attention"}:
        return
    before, ids = config._attn_implementation, torch.arange(8, device=model.device)
    expected = decoder(input_ids=ids[None], use_cache=False).last_hidden_state[0]
    config._attn_implementation = NAME
    try:
        layout = Packed([ids[:4].tolist()] * 2, [ids[4:].tolist() + [0], [4, 0]], model.device)
        found = layout.run(decoder)
        difference = (found[[3, 4, 5, 6, 7, 3, 8]] - expected[[3, 4, 5, 6, 7, 3, 4]]).abs().max()
        same = difference <= max(1e-5, torch.finfo(model.dtype).eps) * expected.abs().max()
    except Exception:  # of many kinds: whatever a model makes of what it does not know
        same = False
    if not same:
        config._attn_implementation = before


def unmasked(layout: Any) -> dict[str, Any]:
    """What a forward pass is given for a layout. transformers hands a mask of four dimensions on as
    it is, and ours is never looked at."""
    return {"layout": layout, "attention_mask": torch.empty(1, 1, 1, 1)}


class Packed:
    """Prompts, each once, and the completions that follow them, in one row of ``n`` tokens: the
    distinct prompts, then the completions but for their last tokens, which predict nothing that is
    wanted. ``predictors`` ``[tokens]`` tells which of the row's tokens predicts each token of the
    completions, completion by completion.
    """

    def __init__(
        self, prompt_ids: list[list[int]], completion_ids: list[list[int]], device: torch.device
    ) -> None:
        place = {prompt: i for i, prompt in enumerate(dict.fromkeys(map(tuple, prompt_ids)))}
        rows = [completion[:-1] for completion in completion_ids]
        of_row = torch.tensor([place[tuple(prompt)] for prompt in prompt_ids])
        before, after = (torch.tensor(list(map(len, parts))) for parts in (place, rows))
        last, starts = before.cumsum(0) - 1, before.sum() + after.cumsum(0) - after
        self.predictors = torch.cat([
            torch.cat([last[prompt : prompt + 1], torch.arange(start, start + length)])[:wanted]
            for prompt, start, length, wanted in zip(
                of_row.tolist(), starts, after, map(len, completion_ids), strict=True
            )
        ]).to(device)  # fmt: skip
        self.input_ids = torch.tensor([[t for row in (*place, *rows) for t in row]], device=device)
        # blocks, padded on the right, in which attention is computed: of the prompts [P, Lp] and
        # the completions [B, T]; what is real in them, and where in the row it lies
        real, inner = (torch.arange(int(n.max())) < n[:, None] for n in (before, after))
        prompts, completions = real.long(), inner.long()
        prompts[real] = torch.arange(int(before.sum()))
        completions[inner] = torch.arange(int(before.sum()), self.input_ids.shape[1])
        positions = before[of_row][:, None] + torch.arange(inner.shape[1])
        self.position_ids = torch.cat([
            torch.arange(real.shape[1]).expand(real.shape)[real], positions[inner]
        ])[None].to(device)  # fmt: skip
        seen = torch.ones(inner.shape[1], inner.shape[1], dtype=torch.bool).tril()
        self.mask = torch.cat([  # [B, 1, T, Lp + T]; padding is seen by padding alone
            real[of_row][:, None].expand(-1, inner.shape[1], -1), seen.expand(len(rows), -1, -1),
        ], 2)[:, None].to(device)  # fmt: skip
        self.prompts, self.completions = prompts.to(device), completions.to(device)
        self.keys = torch.cat([prompts[of_row], completions], 1).to(device)  # [B, Lp + T]
        back = torch.cat([real.flatten(), inner.flatten()])
        self.back = back.nonzero()[:, 0].to(device)

    def run(self, decoder: Any) -> Tensor:
        """The decoder's hidden states ``[n, hidden]``."""
        return decoder(
            input_ids=self.input_ids, position_ids=self.position_ids, use_cache=False,
            **unmasked(self),
        ).last_hidden_state[0]

    def __call__(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, scaling: float, dropout: float
    ) -> Tensor:
        more = {"scale": scaling, "dropout_p": dropout}
        # no fused kernel has both a mask and fewer heads of keys than of queries
        each = query.shape[1] // key.shape[1]
        key, value = (tensor.repeat_interleave(each, 1) for tensor in (key, value))

        def block(tensor: Tensor, index: Tensor) -> Tensor:
            """``[1, heads, tokens, d]`` -> ``[n, heads, width, d]``."""
            return tensor[0].transpose(0, 1)[index].transpose(1, 2)

        parts = [scaled_dot_product_attention(
            *(block(tensor, self.prompts) for tensor in (query, key, value)), is_causal=True, **more
        ), scaled_dot_product_attention(
            block(query, self.completions), block(key, self.keys), block(value, self.keys),
            attn_mask=self.mask, **more,
        )]  # fmt: skip
        return torch.cat([part.transpose(1, 2).flatten(0, 1) for part in parts])[self.back][None]


class SharedPrompts:
    """Decoding of groups, with the keys and values of a prompt held once for all its completions.

    ``layers`` hold ``keys`` and ``values`` ``[P, kv_heads, >= L, d]``, ``real`` ``[P, L]`` tells
    which are no padding, ``group`` ``[rows]`` the prompt of each row; at most ``size`` rows each.
    """

    def __init__(self, layers: list[Any], real: Tensor, group: Tensor, size: int) -> None:
        self.size, length, layers = size, real.shape[1], list(layers)
        self.keys = [layer.keys[:, :, :length].transpose(2, 3).contiguous() for layer in layers]
        self.values = [layer.values[:, :, :length].contiguous() for layer in layers]
        self.bias = torch.zeros_like(self.keys[0][:, :1, :1]).masked_fill_(
            real[:, None, None] == 0, -torch.inf
        )
        first = torch.searchsorted(group, group)
        self.slots = group * size + torch.arange(len(group), device=group.device) - first

    def keep_rows(self, rows: Tensor) -> None:
        """Make row ``i`` what was row ``rows[i]``; prompts without a row go."""
        self.slots = self.slots[rows]
        group, inside = self.slots // self.size, self.slots % self.size
        used, place = group.unique(return_inverse=True)
        if len(used) < len(self.bias):
            self.bias = self.bias[used]
            self.keys = [keys.index_select(0, used) for keys in self.keys]
            self.values = [values.index_select(0, used) for values in self.values]
            self.slots = place * self.size + inside

    def __call__(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, scaling: float, dropout: float
    ) -> Tensor:
        """One softmax over the scores of the prompt and of the completion so far."""
        keys, values = self.keys[layer], self.values[layer]
        prompts, heads, d, length = keys.shape
        query = (query * scaling).view(len(query), heads, -1, d)
        far = self._by_row(self._by_prompt(query) @ keys + self.bias)
        near = query @ key.transpose(2, 3)
        weights = torch.cat([far, near], 3).float().softmax(3).to(query.dtype)
        far, near = weights.split([length, key.shape[2]], 3)
        out = self._by_row(self._by_prompt(far) @ values) + near @ value
        return out.reshape(len(out), 1, -1, d)

    def _by_prompt(self, rows: Tensor) -> Tensor:
        """``[rows, heads, each, x]`` -> ``[P, heads, size * each, x]``: who meets the same prompt
        side by side. Places without a row hold anything, and are never read."""
        if len(rows) < len(self.bias) * self.size:
            slots = rows.new_empty(len(self.bias) * self.size, *rows.shape[1:])
            rows = slots.index_copy_(0, self.slots, rows)
        return rows.view(-1, self.size, *rows.shape[1:]).transpose(1, 2).flatten(2, 3)

    def _by_row(self, groups: Tensor) -> Tensor:
        """Back again."""
        rows = groups.unflatten(2, (self.size, -1)).transpose(1, 2).flatten(0, 1)
        return rows if len(self.slots) == len(rows) else rows.index_select(0, self.slots)
