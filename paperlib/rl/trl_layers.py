"""Layer logits at the answers of completions that TRL sampled, which records none.

Where TRL makes a forward pass over all rollouts before the rewards (several updates a generation
batch), hooks read them there. Otherwise one more pass is made over wrong rollouts alone.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from paperlib.rl.layer_logits import LayerTrace, answer_token
from paperlib.rl.padding import left_padded
from paperlib.rl.policy import in_eval_mode


@torch.no_grad()
def wrong_answers(
    trainer: Any, settings: Any, prompts: list, completion_ids: list[list[int]],
    accuracy: list[float],
) -> np.ndarray:
    """``[n, layers]`` float32: layer logits at the answers of the wrong rollouts, else NaN, as the
    ``settings`` of the asking term say.

    Equal to what :func:`paperlib.rl.sampling.sample_groups` records, by a forward pass over each
    prompt and completion up to the answer, in eval mode.
    """
    model, places = trainer.model, _answers(trainer, settings, completion_ids)
    wrong = [row for row, at in enumerate(places) if at is not None and accuracy[row] < 0.5]
    layers = model.config.get_text_config().num_hidden_layers
    size = trainer.args.per_device_train_batch_size
    out = np.full((len(places), layers), np.nan, dtype=np.float32)
    # the trace keeps the last position: pad on the left
    with in_eval_mode(model), LayerTrace(model, settings.logit) as trace:
        for start in range(0, len(wrong), size):
            rows = wrong[start : start + size]
            prompt_ids = trainer._tokenize_prompts([prompts[row] for row in rows])[0]
            before = [
                ids + completion_ids[row][: places[row]]
                for ids, row in zip(prompt_ids, rows, strict=True)
            ]
            input_ids, mask, positions = left_padded(before, 0, model.device)
            # the decoder alone: TRL replaces the forward of the whole model, and its vocabulary
            # product is not needed
            model.base_model(
                input_ids=input_ids, attention_mask=mask, position_ids=positions, use_cache=False
            )
            tokens = torch.tensor([completion_ids[row][places[row]] for row in rows])
            out[rows] = trace.logits(tokens.to(model.device)).cpu().numpy()
    return out


def read_along(
    trainer: Any, settings: Any, forward: Callable, input_ids: Tensor, attention_mask: Tensor,
    logits_to_keep: int, batch_size: int,
) -> tuple[Tensor, np.ndarray]:
    """The log-probabilities of TRL's ``forward`` pass over the rows, and on the way layer logits
    ``[n, layers]`` at the answers of all rollouts, NaN where there is none."""
    completion_ids, mask = input_ids[:, -logits_to_keep:], attention_mask[:, -logits_to_keep:]
    # TRL may mask a completion because it was cut: it is as wide as can be
    mask = mask.bool() | ~mask.any(1, keepdim=True)
    ids = [row[real].tolist() for row, real in zip(completion_ids, mask, strict=True)]
    places = _answers(trainer, settings, ids)
    tokens = torch.tensor([row[at or 0] for row, at in zip(ids, places, strict=True)])
    # counted from the right; the position before a token predicts it
    columns = torch.tensor([at or 0 for at in places]) - logits_to_keep - 1
    head, device = trainer.model.get_output_embeddings(), input_ids.device
    logps, logits = [], []
    with LayerTrace(trainer.model, settings.logit) as trace:
        for rows in torch.arange(len(ids)).split(batch_size):
            trace.columns = columns[rows].to(device)
            logps.append(forward(input_ids[rows], attention_mask[rows])[0])
            with trainer._dist.gather_params([head.weight]):
                logits.append(trace.logits(tokens[rows].to(device)).cpu())
    values = torch.cat(logits).numpy()
    values[[at is None for at in places]] = np.nan
    return torch.cat(logps), values


def _answers(trainer: Any, settings: Any, completion_ids: list[list[int]]) -> list[int | None]:
    """Index of the token in each completion whose layer logits the asking term wants."""
    tokenizer = trainer.processing_class
    texts = tokenizer.batch_decode(completion_ids, skip_special_tokens=True)
    return [
        answer_token(tokenizer, ids, text, settings.position)
        for ids, text in zip(completion_ids, texts, strict=True)
    ]
