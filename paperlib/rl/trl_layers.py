"""Layer logits at the answers of completions that TRL sampled, which records none.

Where TRL makes a forward pass over all rollouts before the rewards (several updates a generation
batch), hooks read them there. Otherwise one more pass is made over wrong rollouts alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from paperlib.rl.layer_logits import LayerTrace, answer_token
from paperlib.rl.padding import left_padded
from paperlib.rl.policy import in_eval_mode


@torch.no_grad()
def layer_logits_of(
    model: Any, prompt_ids: list[list[int]], completion_ids: list[list[int]],
    positions: list[int], reading: str, *, batch_size: int,
) -> Tensor:
    """The logit of one token of each completion at every layer: ``[n, layers]`` float32, CPU.

    Equal to what :func:`paperlib.rl.sampling.sample_groups` records, by a forward pass over each
    prompt and completion up to that token, ``batch_size`` rows at a time, in eval mode.

    Args:
        positions: ``[n]``, index of the token within its completion.
        reading: "normed" or "raw" (:class:`~paperlib.rl.layer_logits.LayerTrace`).
    """
    before = [
        prompt + ids[:position]
        for prompt, ids, position in zip(prompt_ids, completion_ids, positions, strict=True)
    ]
    tokens = torch.tensor([ids[at] for ids, at in zip(completion_ids, positions, strict=True)])
    out = []
    # the trace keeps the last position: pad on the left
    with in_eval_mode(model), LayerTrace(model, reading) as trace:
        for rows in torch.arange(len(before)).split(batch_size):
            input_ids, mask, positions_of = left_padded([before[i] for i in rows], 0, model.device)
            # the decoder alone: TRL replaces the forward of the whole model, and its vocabulary
            # product is not needed
            model.base_model(
                input_ids=input_ids, attention_mask=mask, position_ids=positions_of,
                use_cache=False,
            )
            out.append(trace.logits(tokens[rows].to(model.device)).cpu())
    return torch.cat(out)


def wrong_answers(
    trainer: Any, settings: Any, accuracy: Sequence[float] | Tensor,
    prompt_ids: Callable[[int], list[int]], completion_ids: list[list[int]], texts: list[str],
) -> np.ndarray:
    """``[n, layers]`` float32: layer logits at the answers of the wrong rollouts, else NaN.

    ``settings`` is the asking term's; ``prompt_ids`` gives the prompt of a row.
    """
    places = {
        row: answer_token(trainer.processing_class, completion_ids[row], text, settings.position)
        for row, text in enumerate(texts) if accuracy[row] < 0.5
    }
    rows = [row for row, place in places.items() if place is not None]
    layers = trainer.model.config.get_text_config().num_hidden_layers
    out = np.full((len(texts), layers), np.nan, dtype=np.float32)
    if rows:
        out[rows] = layer_logits_of(
            trainer.model, [prompt_ids(row) for row in rows], [completion_ids[row] for row in rows],
            [places[row] for row in rows], settings.logit,
            batch_size=trainer.args.per_device_train_batch_size,
        ).numpy()
    return out


def read_along(
    compute: Callable, trainer: Any, settings: Any, completion_ids: list[list[int]],
    texts: list[str], inputs: tuple[Tensor, Tensor, int], batch_size: int | None,
    more: Mapping[str, Any],
) -> tuple[tuple[Tensor, None, None], np.ndarray]:
    """What ``compute``, TRL's _get_per_token_logps_and_entropies, returns for ``inputs``, and on
    the way layer logits ``[n, layers]`` at the answers of all rollouts, NaN where there is none."""
    input_ids, attention_mask, logits_to_keep = inputs
    places = [
        answer_token(trainer.processing_class, ids, text, settings.position)
        for ids, text in zip(completion_ids, texts, strict=True)
    ]
    tokens = torch.tensor([
        ids[at or 0] for ids, at in zip(completion_ids, places, strict=True)
    ])
    # the position before a token predicts it
    columns = torch.tensor([at or 0 for at in places]) + input_ids.shape[1] - logits_to_keep - 1
    head, device = trainer.model.get_output_embeddings(), input_ids.device
    logps, logits = [], []
    with LayerTrace(trainer.model, settings.logit) as trace:
        for rows in torch.arange(len(input_ids)).split(batch_size or len(input_ids)):
            trace.columns = columns[rows].to(device)
            logps.append(compute(
                trainer.model, input_ids[rows], attention_mask[rows], logits_to_keep, **more
            )[0])
            with trainer._dist.gather_params([head.weight]):
                logits.append(trace.logits(tokens[rows].to(device)).cpu())
    values = torch.cat(logits).numpy()
    values[[at is None for at in places]] = np.nan
    return (torch.cat(logps), None, None), values
