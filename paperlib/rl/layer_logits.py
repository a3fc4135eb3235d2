"""Layer logits (MEDS Sec. 3.3): the logit of a sampled token at every decoder layer.

They come out of the forward passes that sampling makes anyway: a hook on each layer keeps the
hidden state that predicts the next token, and once the token is drawn its logit at layer l is
(norm(h_l) * W[token]).sum(): one row of the unembedding, never the vocabulary.
"""

from bisect import bisect_right
from functools import partial
from typing import Any

import torch
from torch import Tensor

from paperlib.errors import UserError
from paperlib.rl.policy import scale_logits
from paperlib.tasks.grading import find_answer

LAYERS = ("layers", "h")  # Llama and most others; GPT-2, Falcon, Bloom
NORMS = ("norm", "final_layernorm", "final_layer_norm", "ln_f")  # most; Phi; GPT-NeoX; GPT-2


class LayerTrace:
    """While open, follows the forward passes of a decoder, tied or untied, that has its layers and
    its final norm under one of the usual names (:data:`LAYERS`, :data:`NORMS`).

    Reading "normed" is the logit lens, final norm then unembedding; "raw" is the released code, the
    unembedding of the raw hidden state, where only the last layer is normed.
    """

    def __init__(self, model: Any, reading: str) -> None:
        parts = dict(model.base_model.named_children())
        layers, norm = ([parts[n] for n in names if n in parts] for names in (LAYERS, NORMS))
        if not layers or not norm:
            raise UserError(
                f"{type(model).__name__} has no decoder layers ({', '.join(LAYERS)}) and final "
                f"norm ({', '.join(NORMS)}) in its base_model; MEDS needs both"
            )
        self._model, self._layers, self._norm, self._reading = model, layers[0], norm[0], reading
        self._hidden: dict[int, Tensor] = {}  # of each layer [rows, hidden]
        self.columns: Tensor | None = None  # [rows] positions to keep; None: the last one

    def __enter__(self) -> "LayerTrace":
        self._hooks = [
            layer.register_forward_hook(partial(self._keep, index))
            for index, layer in enumerate(self._layers)
        ]
        return self

    def __exit__(self, *_: object) -> None:
        for hook in self._hooks:
            hook.remove()

    def _keep(self, index: int, module: Any, inputs: Any, output: Any) -> None:
        hidden = output[0] if isinstance(output, tuple) else output
        rows = slice(None)
        if self.columns is not None:
            rows = torch.arange(len(hidden), device=hidden.device)
        # the last position is a view: nothing is computed while decoding
        self._hidden[index] = hidden[rows, -1 if self.columns is None else self.columns]

    def select(self, rows: Tensor) -> None:
        """Make row ``i`` what was row ``rows[i]``, as the sampler does with its cache."""
        self._hidden = {index: hidden[rows] for index, hidden in self._hidden.items()}

    def logits(self, tokens: Tensor) -> Tensor:
        """``[rows, layers]`` float32: the logit of each row's drawn token ``[rows]`` by layer."""
        hidden = torch.stack(list(self._hidden.values()), 1)
        normed = self._norm(hidden)
        if self._reading == "raw":
            normed = torch.cat([hidden[:, :-1], normed[:, -1:]], 1)
        head = self._model.get_output_embeddings()
        logits = (normed * head.weight[tokens][:, None]).sum(-1)
        if getattr(head, "bias", None) is not None:  # Phi
            logits = logits + head.bias[tokens][:, None]
        return scale_logits(self._model, logits).float()

    def check(self, logits: Tensor) -> None:
        """Refuse a model unless the last layer gives ``[rows, vocabulary]``, its own logits, as it
        does wherever the final norm sees the last layer's output alone."""
        own, tokens = logits.max(-1)
        last = self.logits(tokens)[:, -1]
        if last.shape != own.shape or not torch.allclose(
            last, own.float(), rtol=1e-2, atol=1e-2, equal_nan=True  # NaN is the sampler's to tell
        ):
            raise UserError(
                f"{type(self._model).__name__}: the last layer's logits are not the model's own; "
                "valid for MEDS are models such as Llama, Qwen2 and Qwen3"
            )


def answer_token(tokenizer: Any, ids: list[int], completion: str, position: str) -> int | None:
    """Index of the token whose layer logits describe a completion's answer; None if it has none.

    ``completion`` is the text of ``ids`` without special tokens. Position "answer" is the token
    with the first non-space character of the final answer, in either format; "box" the one after
    the last ``\\boxed{``, closed or not (released code). Found by character offsets, since real
    tokenizers merge ``\\boxed{`` in many ways.
    """
    if position == "answer":
        start = (find_answer(completion) or [len(completion)])[0]
    else:
        before, box, _ = completion.rpartition("\\boxed{")
        start = len(before + box) or len(completion)
    if start >= len(completion):
        return None
    # the text of a prefix grows with it: the first prefix that is longer than start holds it
    return bisect_right(
        range(1, len(ids)), start,
        key=lambda n: len(tokenizer.decode(ids[:n], skip_special_tokens=True)),
    )
