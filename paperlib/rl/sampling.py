"""Sampling groups of completions from a causal LM.

Faster than ``generate`` on the same work because (1) each prompt is run once, and its keys and
values are held once for its group, (2) rows that have ended leave the batch, (3) the cache grows in
blocks instead of being copied at every token, and (4) one uniform number per row and token picks
the token from the cumulative distribution. That number follows from the seed, the prompt and the
places of row and token: a completion depends neither on what else is sampled, nor on how many rows
are sampled at once (:func:`rows_at_once`), nor on the device, rounding aside.
"""

import hashlib
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedModel
from transformers.cache_utils import Cache

from paperlib.errors import UserError
from paperlib.rl.attention import SharedPrompts, takes_layouts, unmasked
from paperlib.rl.cache import BlockLayer, free_bytes, rows_at_once, token_bytes
from paperlib.rl.layer_logits import LayerTrace
from paperlib.rl.padding import left_padded
from paperlib.rl.policy import in_eval_mode

DROP_FRACTION = 1 / 8  # rows that have ended are dropped once they are this part of the batch


@dataclass
class Samples:
    """``P`` prompts with ``G`` completions each, those of a prompt next to each other."""

    prompt_ids: list[list[int]]  # P
    completion_ids: list[list[int]]  # P * G, the end token included when there is one
    logps: list[Tensor]  # P * G float32 on the CPU: log-probability of each token, before top_p
    truncated: Tensor  # [P * G] bool on the CPU: stopped by max_completion_length
    layer_logits: Tensor | None = None  # [P * G, tokens, layers] float32, if asked for


def prompt_seeds(seed: object, prompt_ids: list[list[int]]) -> list[int]:
    """A seed for each prompt, the same in every process; equal prompts have different ones."""
    places = [(seed, prompt_ids[:i].count(ids), *ids) for i, ids in enumerate(prompt_ids)]
    digests = [hashlib.sha256(" ".join(map(str, place)).encode()).digest() for place in places]
    return [int.from_bytes(digest[:7]) for digest in digests]


GAMMA, *MIXERS = (  # of SplitMix64 (Steele, Lea and Flood 2014), as signed numbers
    number - 2**64 for number in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
)


def _mixed(state: Tensor) -> Tensor:
    """SplitMix64's output for each state, int64 with all 64 bits random."""
    for bits, factor in zip((30, 27), MIXERS, strict=True):
        state = (state ^ _right(state, bits)) * factor
    return state ^ _right(state, 31)


def _right(number: Tensor, bits: int) -> Tensor:
    return (number >> bits) & (2 ** (64 - bits) - 1)  # without the sign that >> brings in


def uniform(seeds: Tensor, step: int) -> Tensor:
    """The ``step``-th random number of each seed, ``[rows]`` float32 in [0, 1)."""
    return _right(_mixed(seeds + GAMMA * torch.full_like(seeds, step + 1)), 40).float() / 2**24


@torch.no_grad()
def sample_groups(
    model: PreTrainedModel, prompt_ids: list[list[int]], num_generations: int, *,
    max_completion_length: int, temperature: float, top_p: float, seed: object,
    eos_token_ids: Iterable[int], pad_token_id: int, layer_logits: str | None = None,
) -> Samples:
    """Sample ``num_generations`` completions of every prompt.

    The log-probabilities are those of the full softmax at ``temperature``, before ``top_p``: the
    ones :func:`paperlib.rl.logps.completion_logps` computes again with gradient.

    Args:
        model: a causal LM; sampled in eval mode and handed back in the mode it was in.
        max_completion_length: tokens, the end token included.
        temperature: 0 takes the likeliest token and records log-probabilities at temperature 1.
        top_p: tokens outside the smallest set with this probability are never taken; 1 is off.
        seed: a number or text; a prompt's completions are drawn from it and the prompt.
        layer_logits: "normed" or "raw" also records every sampled token's logit at every layer.
    """
    total = len(prompt_ids) * num_generations
    at_once = rows_at_once(
        total, max(map(len, prompt_ids)) + max_completion_length, token_bytes(model),
        free_bytes(model.device),
    )
    if at_once > num_generations:
        at_once -= at_once % num_generations  # whole groups: each prompt is run once
    ends = sorted(eos_token_ids)
    of_prompt = torch.tensor(prompt_seeds(seed, prompt_ids), device=model.device)[:, None]
    row_seeds = _mixed(of_prompt + GAMMA * torch.arange(num_generations, device=model.device))
    out = Samples(prompt_ids, [], [], torch.zeros(0, dtype=torch.bool))
    layers: list[Tensor] = []
    tracing = LayerTrace(model, layer_logits) if layer_logits else nullcontext()
    with in_eval_mode(model), tracing as trace:
        for start in range(0, total, at_once):
            part = slice(start, min(start + at_once, total))
            group = torch.arange(part.start, part.stop, device=model.device) // num_generations
            first, last = start // num_generations, (part.stop - 1) // num_generations
            tokens, logps, traces = _decode(
                model,
                *_prefill(
                    model, prompt_ids[first : last + 1], group - first, pad_token_id,
                    num_generations, trace,
                ),
                max_completion_length, temperature, top_p, row_seeds.flatten()[part], ends, trace,
            )
            if bad := (~torch.isfinite(logps).all(1)).nonzero()[:, 0].tolist():
                prompt, row = divmod(start + bad[0], num_generations)
                raise UserError(
                    f"{type(model).__name__} gave NaN or infinite logits while sampling, for "
                    f"{len(bad)} of {len(logps)} completions (the first is completion {row} of "
                    f"prompt {prompt}); its weights have diverged (valid: a lower learning_rate) "
                    "or the precision is too low"
                )
            out.completion_ids += [[t for t in row if t >= 0] for row in tokens.tolist()]
            out.logps += [row[ids >= 0] for row, ids in zip(logps.cpu(), tokens.cpu(), strict=True)]
            layers += traces
    out.truncated = torch.tensor([ids[-1] not in ends for ids in out.completion_ids])
    if layers:
        out.layer_logits = pad_sequence(layers, batch_first=True, padding_value=float("nan"))
    return out


def _prefill(
    model: PreTrainedModel, prompt_ids: list[list[int]], group: Tensor, pad_token_id: int,
    num_generations: int, trace: LayerTrace | None,
) -> tuple[Cache, SharedPrompts | None, Tensor, Tensor]:
    """Run each prompt once, padded on the left. ``group`` ``[rows]`` is the prompt of each row.

    Returns the cache of the rows, the layout in which they share their prompts' keys and values (or
    None, and these are in the cache, repeated), the attention mask ``[rows, width]`` of the prompts
    and logits ``[rows, vocabulary]`` of the first new token.
    """
    input_ids, attention_mask, position_ids = left_padded(prompt_ids, pad_token_id, model.device)
    cache, shared = Cache(layer_class_to_replicate=BlockLayer), None
    logits = model(
        input_ids=input_ids, attention_mask=attention_mask, position_ids=position_ids,
        cache=cache, use_cache=True, logits_to_keep=1,
    ).logits[:, -1]
    if trace:
        trace.check(logits)
        trace.select(group)
    if takes_layouts(model):
        shared = SharedPrompts(cache.layers, attention_mask, group, num_generations)
        cache = Cache(layer_class_to_replicate=BlockLayer)
    for layer in cache.layers:
        layer.keep_rows(group)
    return cache, shared, attention_mask[group], logits[group]


def _decode(
    model: PreTrainedModel, cache: Cache, shared: SharedPrompts | None, attention_mask: Tensor,
    logits: Tensor, max_completion_length: int, temperature: float, top_p: float, seeds: Tensor,
    ends: list[int], trace: LayerTrace | None,
) -> tuple[Tensor, Tensor, list[Tensor]]:
    """One token per step for every row of the batch, until all rows have ended.

    Returns ``tokens`` (-1 after a row's end) and ``logps`` ``[rows, max_completion_length]``, and
    of each row the layer logits ``[steps, layers]`` on the CPU, if traced.
    """
    device, (rows, width) = logits.device, attention_mask.shape
    eos = torch.tensor(ends, device=device)
    tokens = torch.full((rows, max_completion_length), -1, device=device)
    logps = torch.zeros(rows, max_completion_length, device=device)
    batch = torch.arange(rows, device=device)  # the rows still in the batch
    running = torch.ones(rows, dtype=torch.bool, device=device)  # of those
    position = attention_mask.sum(1, keepdim=True)  # of the next token, padding not counted
    if not shared:  # which knows what is padding
        room = (0, max_completion_length)
        attention_mask = torch.nn.functional.pad(attention_mask, room, value=1)
    traces: list[Tensor] = []

    for step in range(max_completion_length):
        token, logp = _pick(logits, temperature, top_p, uniform(seeds[batch], step))
        tokens[batch, step], logps[batch, step] = token.where(running, -1), logp.where(running, 0)
        if trace:
            drawn = trace.logits(token)
            traces.append(drawn.new_full((rows, drawn.shape[1]), float("nan")))
            traces[-1][batch] = drawn

        running = running & ~torch.isin(token, eos)
        num_running = int(running.sum())
        if num_running == 0 or step + 1 == max_completion_length:
            break
        if len(batch) - num_running >= DROP_FRACTION * len(batch):
            kept = running.nonzero()[:, 0]
            batch, token, position = batch[kept], token[kept], position[kept]
            running, attention_mask = running[kept], attention_mask[kept]
            for held in (*cache.layers, *([shared] if shared else [])):
                held.keep_rows(kept)

        seen = unmasked(shared) if shared else {
            "attention_mask": attention_mask[:, : width + step + 1]
        }
        logits = model(
            input_ids=token[:, None], position_ids=position + step, cache=cache, use_cache=True,
            logits_to_keep=1, **seen,
        ).logits[:, -1]
    return tokens, logps, list(torch.stack(traces, 1).cpu()) if traces else []


def _pick(
    logits: Tensor, temperature: float, top_p: float, uniform: Tensor
) -> tuple[Tensor, Tensor]:
    """``[rows, vocabulary]`` logits and ``[rows]`` uniform numbers -> tokens and logps ``[rows]``:
    the first token whose cumulative probability exceeds the uniform number."""
    logits = logits.float()
    if temperature == 0:
        logps = torch.log_softmax(logits, -1)
        token = logits.argmax(-1, keepdim=True)
    else:
        logps = torch.log_softmax(logits / temperature, -1)
        probabilities = logps.exp()
        if top_p < 1:
            probabilities = _nucleus(probabilities, top_p)
        cumulative = probabilities.cumsum(-1)
        # a fraction of the actual total, which rounding or top_p put below 1
        target = uniform[:, None] * cumulative[:, -1:]
        token = torch.searchsorted(cumulative, target, right=True)
        # only NaN logits get past the end; sample_groups reports them
        token = token.clamp(max=logits.shape[-1] - 1)
    return token[:, 0], logps.gather(-1, token)[:, 0]


def _nucleus(probabilities: Tensor, top_p: float) -> Tensor:
    """Zero outside the smallest set of likeliest tokens whose probability reaches ``top_p``."""
    ordered, order = probabilities.sort(-1, descending=True)
    before = ordered.cumsum(-1) - ordered  # probability of all likelier tokens
    return torch.zeros_like(ordered).scatter(-1, order, ordered.masked_fill(before >= top_p, 0.0))
