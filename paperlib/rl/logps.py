"""Log-probabilities of sampled completions with gradient: the forward pass of training."""

from collections.abc import Iterable

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.utils.checkpoint import checkpoint
from transformers import DynamicCache, PreTrainedModel

from paperlib.errors import UserError
from paperlib.rl.padding import left_padded
from paperlib.rl.policy import in_eval_mode, scale_logits

VALID = "valid: causal LMs such as Llama, Qwen2, Qwen3, Gemma, Cohere or Granite"


def micro_batches(
    prompt_ids: list[list[int]], completion_ids: list[list[int]], token_budget: int,
    rows: Iterable[int] | None = None,
) -> list[list[int]]:
    """Cut rows (default: all) into micro-batches of at most ``token_budget`` padded tokens.

    Rows of a prompt stay together, since their prompt is computed once, and prompts with long
    completions come first, so that a batch that does not fit into memory fails at once. A row
    longer than the budget stands alone. Returns lists of row indices; every index once.
    """
    rows = list(range(len(prompt_ids)) if rows is None else rows)
    prompts = {row: tuple(prompt_ids[row]) for row in rows}
    longest: dict[tuple[int, ...], int] = {}
    for row, prompt in prompts.items():
        longest[prompt] = max(longest.get(prompt, 0), len(completion_ids[row]))
    place = {prompt: i for i, prompt in enumerate(longest)}

    def padded_tokens(batch: list[int]) -> int:
        used = {prompts[row] for row in batch}
        width = max(len(completion_ids[row]) for row in batch)
        return len(batch) * width + len(used) * max(map(len, used))

    rows.sort(key=lambda i: (-longest[prompts[i]], place[prompts[i]], -len(completion_ids[i]), i))
    batches: list[list[int]] = []
    for row in rows:
        if batches and padded_tokens([*batches[-1], row]) <= token_budget:
            batches[-1].append(row)
        else:
            batches.append([row])
    return batches


def completion_logps(
    model: PreTrainedModel, prompt_ids: list[list[int]], completion_ids: list[list[int]], *,
    temperature: float, chunk_tokens: int | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Log-probability and entropy of every completion token, given what stands before it.

    Each distinct prompt runs once, and its keys and values serve all its completions, with
    gradient. The unembedding runs only where a completion token is predicted, ``chunk_tokens`` at
    a time (at most 4,096, and at most 2^26 logits: 268 MB for each copy of them), and but for the
    first chunk again in the backward pass, so that logits for all tokens never exist at once.

    The model is one that passed :func:`check_head`, in whatever mode; completions have their end
    token and may be empty. Returns ``logps`` with gradient, ``entropy`` (nats, whole distribution,
    detached) and ``mask`` (bool), each ``[B, T]`` with ``T`` the longest completion; float32, 0
    outside the mask.
    """
    device = model.device
    completions = torch.tensor([len(c) for c in completion_ids], device=device)
    targets = _pad(completion_ids).to(device)
    mask = torch.arange(targets.shape[1], device=device) < completions[:, None]
    row, offset = mask.nonzero(as_tuple=True)
    forward = _shared_prompts if _can_share(model) else _whole_rows
    predictors = forward(model, prompt_ids, completion_ids, targets, mask)[row, offset]
    wanted = targets[row, offset]  # [tokens]

    if chunk_tokens is None:
        chunk_tokens = min(4096, 2**26 // model.get_output_embeddings().weight.shape[0])
    scored = []
    for h, w in zip(predictors.split(chunk_tokens), wanted.split(chunk_tokens), strict=True):
        if not scored:  # the first chunk's logits may stay for the backward pass
            scored.append(_score(model, h, w, temperature))
        else:
            scored.append(checkpoint(_score, model, h, w, temperature, use_reentrant=False))
    logps, entropy = (torch.cat(parts) for parts in zip(*scored, strict=True))
    empty = torch.zeros(mask.shape, device=device)
    return empty.masked_scatter(mask, logps), empty.masked_scatter(mask, entropy), mask


def _can_share(model: PreTrainedModel) -> bool:
    """Gradient checkpointing allows no cache; a sliding window would forget the prompt's start."""
    checkpointing = model.training and model.is_activation_checkpointing
    kinds = set(getattr(model.config, "layer_types", None) or ["full_attention"])
    return not checkpointing and kinds == {"full_attention"}


def _whole_rows(model, prompt_ids, completion_ids, targets, mask) -> Tensor:
    """Hidden states ``[B, T, hidden]`` that predict the completion tokens: prompt and completion
    of each row in one sequence. Padded on the right, which no real token sees."""
    input_ids = _pad([p + c[:-1] for p, c in zip(prompt_ids, completion_ids, strict=True)])
    input_ids = input_ids.to(targets.device)
    hidden = model.base_model(input_ids=input_ids, use_cache=False).last_hidden_state
    starts = torch.tensor([len(p) - 1 for p in prompt_ids], device=targets.device)
    index = starts[:, None] + torch.arange(targets.shape[1], device=targets.device)
    index = index.clamp(max=hidden.shape[1] - 1)
    return hidden.gather(1, index[:, :, None].expand(-1, -1, hidden.shape[2]))


def _shared_prompts(model, prompt_ids, completion_ids, targets, mask) -> Tensor:
    """The same as :func:`_whole_rows` with each distinct prompt computed once.

    Prompts are padded on the left, so that every completion starts at the same place.
    """
    device = targets.device
    distinct = list(dict.fromkeys(map(tuple, prompt_ids)))
    place = {prompt: i for i, prompt in enumerate(distinct)}
    of_row = torch.tensor([place[tuple(p)] for p in prompt_ids], device=device)
    ids, real, positions = left_padded([list(p) for p in distinct], 0, device)
    cache = DynamicCache()
    prompts = model.base_model(
        input_ids=ids, attention_mask=real, position_ids=positions, cache=cache, use_cache=True,
    )
    first = prompts.last_hidden_state[:, -1:][of_row]  # predicts each completion's first token
    if targets.shape[1] < 2:
        return first[:, : targets.shape[1]]
    cache.batch_select_indices(of_row)
    inputs = targets[:, :-1]  # a completion's last token predicts nothing that is wanted
    rest = model.base_model(
        input_ids=inputs,
        attention_mask=torch.cat([real[of_row], mask[:, :-1].long()], 1),
        position_ids=real.sum(1)[of_row][:, None] + torch.arange(inputs.shape[1], device=device),
        cache=cache, use_cache=True,
    ).last_hidden_state
    return torch.cat([first, rest], 1)


def _score(
    model: PreTrainedModel, hidden: Tensor, wanted: Tensor, temperature: float
) -> tuple[Tensor, Tensor]:
    """``[tokens, hidden]``, ``[tokens]`` -> log-probability and entropy, ``[tokens]`` float32."""
    logits = scale_logits(model, model.get_output_embeddings()(hidden)).float() / temperature
    logps = torch.log_softmax(logits, -1)
    with torch.no_grad():
        entropy = -(logps.exp() * logps).sum(-1)
    return logps.gather(-1, wanted[:, None])[:, 0], entropy


def _pad(rows: list[list[int]]) -> Tensor:
    """Rows padded on the right with token 0, which no real token ever sees."""
    return pad_sequence([torch.tensor(row, dtype=torch.long) for row in rows], batch_first=True)


@torch.no_grad()
def check_head(model: PreTrainedModel) -> None:
    """Refuse a model whose logits are not its unembedding applied to its decoder's output, scaled
    and capped as :func:`~paperlib.rl.policy.scale_logits` does it: :func:`completion_logps` relies
    on that, and anything else would break it silently."""
    name, head = type(model).__name__, model.get_output_embeddings()
    if model.base_model is model or head is None:
        raise UserError(f"{name} does not name its decoder (base_model) and unembedding; {VALID}")
    generator = torch.Generator().manual_seed(0)
    vocabulary = model.get_input_embeddings().num_embeddings
    ids = torch.randint(vocabulary, (1, 8), generator=generator).to(model.device)
    with in_eval_mode(model):
        expected = model(input_ids=ids, use_cache=False).logits.float()
        hidden = model.base_model(input_ids=ids, use_cache=False).last_hidden_state
        logits = scale_logits(model, head(hidden)).float()
    difference = float((logits - expected).abs().max())
    tolerance = max(1e-5, torch.finfo(model.dtype).eps) * float(expected.abs().max())
    if not difference <= tolerance:
        raise UserError(
            f"{name}: logits differ from unembedding(decoder(ids)) by up to {difference:.3g}; "
            f"{VALID}"
        )
