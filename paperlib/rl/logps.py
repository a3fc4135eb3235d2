"""Log-probabilities of sampled completions with gradient: the forward pass of training."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from paperlib.errors import UserError


def micro_batches(lengths: list[int], token_budget: int) -> list[list[int]]:
    """Cut rows into micro-batches of at most ``token_budget`` padded tokens.

    Rows of similar length come together, widest first, so that a batch that does not fit into
    memory fails at once. A row longer than the budget stands alone.

    Args:
        lengths: tokens of each row, prompt and completion.

    Returns:
        Lists of indices into ``lengths``; every index once.
    """
    batches: list[list[int]] = []
    width = 0
    for row in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        if not batches or (len(batches[-1]) + 1) * width > token_budget:
            batches.append([])
            width = lengths[row]
        batches[-1].append(row)
    return batches


def completion_logps(
    model: PreTrainedModel,
    prompt_ids: list[list[int]],
    completion_ids: list[list[int]],
    *,
    temperature: float,
    chunk_tokens: int = 4096,
) -> tuple[Tensor, Tensor, Tensor]:
    """Log-probability and entropy of every completion token, given what stands before it.

    Rows are padded on the right only, to the widest row of this call: under causal attention no
    real token sees the padding, so no attention mask is needed. The unembedding runs only where a
    completion token is predicted, ``chunk_tokens`` at a time, and is computed again in the
    backward pass, so that logits for all tokens never exist at once.

    Args:
        model: a causal LM that passed :func:`check_head`, in whatever mode it is.
        prompt_ids: ``B`` prompts, none of them empty.
        completion_ids: ``B`` completions, the end token included; may be empty.
        temperature: logits are divided by it; that of sampling.

    Returns:
        ``logps`` with gradient, ``entropy`` (nats, whole distribution, detached) and ``mask``
        (bool), each ``[B, T]`` with ``T`` the longest completion; float32, 0 outside the mask.

    Raises:
        UserError: an empty prompt.
    """
    if not all(prompt_ids):
        raise UserError(f"prompt {[bool(p) for p in prompt_ids].index(False)} has no tokens")
    device = model.device
    prompts = torch.tensor([len(p) for p in prompt_ids], device=device)
    completions = torch.tensor([len(c) for c in completion_ids], device=device)
    # the last token of a row predicts nothing that is wanted
    rows = [(p + c)[:-1] for p, c in zip(prompt_ids, completion_ids, strict=True)]
    input_ids = _pad(rows, max(1, max(map(len, rows)))).to(device)
    width = max(map(len, completion_ids))
    targets = _pad(completion_ids, width).to(device)

    hidden = model.base_model(input_ids=input_ids, use_cache=False).last_hidden_state
    offsets = torch.arange(width, device=device)
    mask = offsets < completions[:, None]
    row, offset = mask.nonzero(as_tuple=True)
    predictors = hidden[row, prompts[row] - 1 + offset]  # [tokens, hidden]
    wanted = targets[row, offset]  # [tokens]

    head = model.get_output_embeddings()
    chunks = [
        checkpoint(_score, head, h, w, temperature, use_reentrant=False)
        for h, w in zip(predictors.split(chunk_tokens), wanted.split(chunk_tokens), strict=True)
    ]
    logps, entropy = (torch.cat(parts) for parts in zip(*chunks, strict=True))
    empty = torch.zeros(mask.shape, device=device)
    return empty.masked_scatter(mask, logps), empty.masked_scatter(mask, entropy), mask


def _score(
    head: nn.Module, hidden: Tensor, wanted: Tensor, temperature: float
) -> tuple[Tensor, Tensor]:
    """``[tokens, hidden]``, ``[tokens]`` -> log-probability and entropy, ``[tokens]`` float32."""
    logits = head(hidden).float() / temperature
    logps = torch.log_softmax(logits, -1)
    with torch.no_grad():
        entropy = -(logps.exp() * logps).sum(-1)
    return logps.gather(-1, wanted[:, None])[:, 0], entropy


def _pad(rows: list[list[int]], width: int) -> Tensor:
    """Rows padded on the right with token 0, which no real token ever sees."""
    out = torch.zeros(len(rows), width, dtype=torch.long)
    for i, row in enumerate(rows):
        out[i, : len(row)] = torch.tensor(row, dtype=torch.long)
    return out


@torch.no_grad()
def check_head(model: PreTrainedModel) -> None:
    """Check that the model's logits are its unembedding applied to its decoder's output.

    :func:`completion_logps` relies on it; soft-capping or a logit scale would break it silently.

    Raises:
        UserError: they differ; names the model class and the largest difference.
    """
    generator = torch.Generator().manual_seed(0)
    vocabulary = model.get_input_embeddings().num_embeddings
    ids = torch.randint(vocabulary, (1, 8), generator=generator).to(model.device)
    was_training = model.training
    model.eval()
    try:
        expected = model(input_ids=ids, use_cache=False).logits.float()
        hidden = model.base_model(input_ids=ids, use_cache=False).last_hidden_state
        logits = model.get_output_embeddings()(hidden).float()
    finally:
        model.train(was_training)
    difference = float((logits - expected).abs().max())
    tolerance = max(1e-5, torch.finfo(model.dtype).eps) * float(expected.abs().max())
    if not difference <= tolerance:
        raise UserError(
            f"{type(model).__name__}: logits differ from unembedding(decoder(ids)) by up to "
            f"{difference:.3g}, so it scales or caps its logits; valid: causal LMs whose logits "
            "are a linear map of the last hidden state, such as Llama, Qwen2 or Qwen3"
        )
