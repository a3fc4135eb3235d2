"""Log-probabilities of sampled completions with gradient: the forward pass of training."""

from collections.abc import Iterable

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from paperlib.errors import UserError
from paperlib.rl.attention import Packed, takes_layouts
from paperlib.rl.policy import in_eval_mode, scale_logits

VALID = "valid: causal LMs such as Llama, Qwen2, Qwen3, Gemma, Cohere or Granite"


def micro_batches(
    prompt_ids: list[list[int]], completion_ids: list[list[int]], token_budget: int,
    rows: Iterable[int] | None = None,
) -> list[list[int]]:
    """Cut rows (default: all) into micro-batches of at most ``token_budget`` tokens.

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
    rows.sort(key=lambda i: (-longest[prompts[i]], place[prompts[i]], -len(completion_ids[i]), i))
    batches: list[list[int]] = []
    tokens, held = 0, set()
    for row in rows:
        more = len(completion_ids[row]) + len(prompts[row]) * (prompts[row] not in held)
        if not batches or tokens + more > token_budget:
            batches.append([])
            tokens, held, more = 0, set(), len(completion_ids[row]) + len(prompts[row])
        batches[-1].append(row)
        tokens += more
        held.add(prompts[row])
    return batches


def completion_logps(
    model: PreTrainedModel, prompt_ids: list[list[int]], completion_ids: list[list[int]], *,
    temperature: float, chunk_tokens: int | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Log-probability and entropy of every completion token, given what stands before it.

    Where the model :func:`~paperlib.rl.attention.takes_layouts`, each distinct prompt runs once and
    nothing is padded. The unembedding runs only where a completion token is predicted,
    ``chunk_tokens`` at a time (at most 4,096, and at most 2^26 logits: 268 MB for each copy of
    them), and but for the first chunk again in the backward pass, so that logits for all tokens
    never exist at once.

    The model is one that passed :func:`check_head`, in whatever mode; completions have their end
    token and may be empty. Returns ``logps`` with gradient, ``entropy`` (nats, whole distribution,
    detached) and ``mask`` (bool), each ``[B, T]`` with ``T`` the longest completion; float32, 0
    outside the mask.
    """
    device = model.device
    lengths = torch.tensor([len(c) for c in completion_ids], device=device)
    mask = torch.arange(int(lengths.max()), device=device) < lengths[:, None]
    wanted = torch.tensor([token for row in completion_ids for token in row], device=device)
    if takes_layouts(model):
        layout = Packed(prompt_ids, completion_ids, device)
        predictors = layout.run(model.base_model)[layout.predictors]
    else:
        predictors = _whole_rows(model, prompt_ids, completion_ids)

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


def _whole_rows(model, prompt_ids, completion_ids) -> Tensor:
    """Hidden states that predict the completion tokens, row by row: prompt and completion of each
    row in one sequence, padded on the right, which no real token sees."""
    rows = [torch.tensor(p + c[:-1]) for p, c in zip(prompt_ids, completion_ids, strict=True)]
    input_ids = pad_sequence(rows, batch_first=True).to(model.device)
    hidden = model.base_model(input_ids=input_ids, use_cache=False).last_hidden_state
    parts = zip(hidden, prompt_ids, completion_ids, strict=True)
    return torch.cat([row[len(p) - 1 :][: len(c)] for row, p, c in parts])


def _score(
    model: PreTrainedModel, hidden: Tensor, wanted: Tensor, temperature: float
) -> tuple[Tensor, Tensor]:
    """``[tokens, hidden]``, ``[tokens]`` -> log-probability and entropy, ``[tokens]`` float32."""
    logits = scale_logits(model, model.get_output_embeddings()(hidden)).float() / temperature
    logps = torch.log_softmax(logits, -1)
    with torch.no_grad():
        entropy = -(logps.exp() * logps).sum(-1)
    return logps.gather(-1, wanted[:, None])[:, 0], entropy


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
