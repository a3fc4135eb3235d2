"""Sampling groups against transformers' ``generate`` on repeated prompts."""

from typing import Any

import torch
from measure import alternate, paired_row
from transformers import LlamaConfig, LlamaForCausalLM

from paperlib.rl.padding import left_padded
from paperlib.rl.policy import load_policy
from paperlib.rl.sampling import sample_groups
from paperlib.tasks.tiny import MODEL_DIR

GROUP, PROMPT, LENGTH = 16, 150, 200


def random_model(vocabulary: int = 512) -> Any:
    """The tiny model's shape with random weights: it never ends early by itself."""
    config = LlamaConfig.from_pretrained(MODEL_DIR)
    config.vocab_size = vocabulary
    torch.manual_seed(0)
    return LlamaForCausalLM(config).eval()


def against_generate(
    work: str, name: str, prompts: int, repeats: int, goal: float
) -> list[dict[str, Any]]:
    """Groups of 16, prompts of 150 tokens; enough tokens end a completion that their lengths go
    from a few tokens to 200."""
    model = random_model() if name == "random" else load_policy(name)[0]
    vocabulary = model.config.vocab_size
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(5, vocabulary, (prompts, PROMPT), generator=generator).tolist()
    ends = _ending(model, ids)
    lengths = []

    def ours(temperature: float = 1.0):
        found = sample_groups(
            model, ids, GROUP, max_completion_length=LENGTH, temperature=temperature, top_p=1.0,
            seed=0, eos_token_ids=ends, pad_token_id=0,
        )
        lengths.extend(map(len, found.completion_ids))
        return found.completion_ids

    def generate(**how):
        inputs, mask, _ = left_padded([p for p in ids for _ in range(GROUP)], 0, model.device)
        return model.generate(
            inputs, attention_mask=mask, max_new_tokens=LENGTH, eos_token_id=list(ends),
            pad_token_id=0, **how,
        )[:, PROMPT:]

    times = alternate(ours, lambda: generate(do_sample=True, temperature=1.0, top_k=0),
                      repeats, warm_up=name == "random")
    details = (f"{prompts} x {GROUP} completions of {min(lengths)} to {max(lengths)} tokens, mean "
               f"{sum(lengths) / len(lengths):.0f}")
    mine, theirs = ours(0.0), generate(do_sample=False).tolist()
    equal = all(a == b[: len(a)] for a, b in zip(mine, theirs, strict=True))
    details += f"; greedy output {'token-identical' if equal else 'DIFFERENT'}"
    return [paired_row(work, "`generate`, prompts repeated", times, goal, details)]


@torch.no_grad()
def _ending(model: Any, ids: list[list[int]]) -> set[int]:
    """Tokens that together have about 1 % of the probability after these prompts."""
    probabilities = model(torch.tensor(ids)).logits.softmax(-1).mean((0, 1))
    order, total, out = probabilities.argsort(), 0.0, set()
    for token in order.tolist():  # the least likely first: greedy decoding meets none too early
        if total > 0.01:
            break
        total += float(probabilities[token])
        out.add(token)
    return out
