"""Layer logits at the answers of one generation batch, inside a TRL trainer.

Where TRL makes a forward pass over all rollouts before the rewards (several updates a generation
batch), hooks read them there. Otherwise one more pass is made over wrong rollouts alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from paperlib.rl.layer_logits import LayerTrace, answer_token
from paperlib.rl.trl_rewards import layer_logits_of


class AnswerLogits:
    """``settings`` is the asking term's; the lists are the rollouts of this process."""

    def __init__(
        self, trainer: Any, settings: Any, prompt_ids: list[list[int]],
        completion_ids: list[list[int]], texts: list[str],
    ) -> None:
        self.model, self.settings = trainer.model, settings
        self.gather_params = trainer._dist.gather_params
        self.batch_size = trainer.args.per_device_train_batch_size
        self.prompt_ids, self.completion_ids = prompt_ids, completion_ids
        tokenizer = trainer.processing_class
        self.places = [  # of the token that stands for an answer, None where there is none
            answer_token(tokenizer, ids, text, settings.position)
            for ids, text in zip(completion_ids, texts, strict=True)
        ]
        self.values: np.ndarray | None = None  # [rows, layers] once they are known

    def read_along(
        self, compute: Callable, model: Any, input_ids: Tensor, attention_mask: Tensor,
        logits_to_keep: int, batch_size: int | None, **kwargs: Any,
    ) -> tuple[Tensor, None, None]:
        """What ``compute``, TRL's _get_per_token_logps_and_entropies, returns; on the way."""
        places = torch.tensor([at or 0 for at in self.places])
        tokens = torch.tensor([
            ids[at or 0] for ids, at in zip(self.completion_ids, self.places, strict=True)
        ])
        # the position before a token predicts it
        columns = input_ids.shape[1] - logits_to_keep + places - 1
        head, device = self.model.get_output_embeddings(), input_ids.device
        logps, logits = [], []
        with LayerTrace(self.model, self.settings.logit) as trace:
            for rows in torch.arange(len(input_ids)).split(batch_size or len(input_ids)):
                trace.columns = columns[rows].to(device)
                of_rows = compute(
                    model, input_ids[rows], attention_mask[rows], logits_to_keep, **kwargs
                )
                logps.append(of_rows[0])
                with self.gather_params([head.weight]):
                    logits.append(trace.logits(tokens[rows].to(device)).cpu())
        self.values = torch.cat(logits).numpy()
        self.values[[at is None for at in self.places]] = np.nan
        return torch.cat(logps), None, None

    def read(self, accuracy: Tensor) -> list[np.ndarray]:
        """``[layers]`` float32 for each rollout, NaN without an answer; also NaN for right ones
        if a forward pass had to be made for this."""
        if self.values is None:
            layers = self.model.config.get_text_config().num_hidden_layers
            self.values = np.full((len(self.places), layers), np.nan, dtype=np.float32)
            places = enumerate(self.places)
            wrong = [i for i, at in places if at is not None and accuracy[i] < 0.5]
            if wrong:
                self.values[wrong] = layer_logits_of(
                    self.model, [self.prompt_ids[i] for i in wrong],
                    [self.completion_ids[i] for i in wrong], [self.places[i] for i in wrong],
                    self.settings.logit, batch_size=self.batch_size,
                ).numpy()
        return list(self.values)
