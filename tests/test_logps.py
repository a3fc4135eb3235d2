import pytest
import torch
from torch import nn
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from paperlib.errors import UserError
from paperlib.rl.attention import takes_layouts
from paperlib.rl.logps import check_head, completion_logps, micro_batches

CLASSES = {
    "llama": (LlamaConfig, LlamaForCausalLM),
    "qwen2": (Qwen2Config, Qwen2ForCausalLM),
    "qwen3": (Qwen3Config, Qwen3ForCausalLM),
}
PROMPTS = [[3, 4, 5, 6], [7], [8, 9], [7]]  # the second and the last are one prompt
COMPLETIONS = [[13, 14], [15, 16, 17, 18, 1], [], [19]]


def make_model(kind="llama", tied=True):
    config_class, model_class = CLASSES[kind]
    torch.manual_seed(0)
    config = config_class(
        vocab_size=40, hidden_size=32, intermediate_size=48, num_hidden_layers=3,
        num_attention_heads=4, num_key_value_heads=2, head_dim=8, tie_word_embeddings=tied,
        max_position_embeddings=128, initializer_range=0.3, pad_token_id=0, eos_token_id=1,
    )
    model = model_class(config).eval()
    assert takes_layouts(model)  # tried now, so that no test counts the passes of it
    return model


def plain(model, prompt, completion, temperature):
    """Log-probs and entropies of one unpadded row, straight from the definition."""
    logits = model(input_ids=torch.tensor([prompt + completion])).logits[0] / temperature
    logps = logits.log_softmax(-1)[len(prompt) - 1 : -1]
    entropy = -(logps.exp() * logps).sum(-1)
    return logps[torch.arange(len(completion)), torch.tensor(completion)], entropy


@pytest.mark.parametrize("kind", CLASSES)
@pytest.mark.parametrize("tied", [True, False])
def test_values_and_gradients_equal_a_plain_forward(kind, tied):
    model = make_model(kind, tied)
    weights = torch.randn(4, 5, generator=torch.Generator().manual_seed(1))
    logps, entropy, mask = completion_logps(model, PROMPTS, COMPLETIONS, temperature=0.7)
    (logps * weights).sum().backward()
    gradients = [p.grad.clone() for p in model.parameters()]
    assert logps.shape == entropy.shape == mask.shape == (4, 5)
    assert mask.sum(1).tolist() == [2, 5, 0, 1]
    assert not entropy.requires_grad
    assert (logps[~mask] == 0).all() and (entropy[~mask] == 0).all()

    model.zero_grad()
    total = 0.0
    for i, (prompt, completion) in enumerate(zip(PROMPTS, COMPLETIONS, strict=True)):
        if completion:
            expected, expected_entropy = plain(model, prompt, completion, 0.7)
            assert torch.allclose(logps[i, : len(completion)], expected, atol=1e-5)
            assert torch.allclose(entropy[i, : len(completion)], expected_entropy, atol=1e-5)
            total = total + (expected * weights[i, : len(completion)]).sum()
    total.backward()
    for parameter, gradient in zip(model.parameters(), gradients, strict=True):
        assert torch.allclose(parameter.grad, gradient, rtol=1e-4, atol=1e-4)


def test_layouts_equal_whole_rows():
    """Prompts computed once, and no padding, change neither values nor gradients."""
    prompts = [p for p in ([3, 4, 5, 6, 7], [8], [9, 10]) for _ in range(3)]
    completions = [[11, 12], [13], [], [14, 15, 16, 17], [18], [19, 20], [21], [22, 23, 1], [24]]
    results = []
    for layouts, checkpointing in ((False, False), (True, False), (True, True)):
        model, shapes = make_model().train(), []
        if not layouts:
            model.config._attn_implementation = "sdpa"
        model.model.register_forward_pre_hook(
            lambda m, a, k, seen=shapes: seen.append(tuple(k["input_ids"].shape)),
            with_kwargs=True,
        )
        if checkpointing:
            model.activation_checkpointing_enable({"use_reentrant": False})
        logps, entropy, _ = completion_logps(model, prompts, completions, temperature=0.8)
        assert shapes == [(1, 8 + 7) if layouts else (9, 5 + 1)]  # 7: last tokens predict nothing
        (logps * torch.arange(36).reshape(9, 4)).sum().backward()
        results.append((logps, entropy, *(p.grad for p in model.parameters())))
    for found in results[1:]:
        for one, other in zip(found, results[0], strict=True):
            assert torch.allclose(one, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("chunk_tokens", [1, 3, 8])
def test_chunk_size_changes_nothing(chunk_tokens):
    model = make_model()
    results = []
    for size in (4096, chunk_tokens):
        model.zero_grad()
        logps, entropy, _ = completion_logps(
            model, PROMPTS, COMPLETIONS, temperature=1.0, chunk_tokens=size
        )
        logps.sum().backward()
        results.append((logps, entropy, [p.grad.clone() for p in model.parameters()]))
    assert torch.allclose(results[0][0], results[1][0], atol=1e-6)
    assert torch.allclose(results[0][1], results[1][1], atol=1e-6)
    for one, other in zip(results[0][2], results[1][2], strict=True):
        assert torch.allclose(one, other, rtol=1e-4, atol=1e-5)


def test_logits_are_never_all_alive():
    """No chunk sees more than chunk_tokens tokens, and in the backward all but the first, whose
    logits are kept, are run again."""
    model = make_model(tied=False)
    seen = []
    model.lm_head.register_forward_hook(lambda m, i, out: seen.append(out.shape[0]))
    logps, _, mask = completion_logps(model, PROMPTS, COMPLETIONS, temperature=1.0, chunk_tokens=3)
    assert seen == [3, 3, 2]
    logps.sum().backward()
    assert sorted(seen) == [2, 2, 3, 3, 3]


def test_only_empty_completions():
    model = make_model()
    logps, entropy, mask = completion_logps(model, [[3], [4, 5]], [[], []], temperature=1.0)
    assert logps.shape == entropy.shape == mask.shape == (2, 0)
    (logps.sum() + 0).backward()


def test_micro_batches_by_hand():
    prompts = [[1, 1], [2], [1, 1], [2]]
    completions = [[5] * n for n in (3, 7, 2, 1)]
    # prompt 2 first (its longest has 7): with its token 7 + 1 + 1 are 9, with a row of prompt 1
    # and its two tokens 9 + 3 + 2 = 14, with the other one 16
    assert micro_batches(prompts, completions, 16) == [[1, 3, 0, 2]]
    assert micro_batches(prompts, completions, 15) == [[1, 3, 0], [2]]
    assert micro_batches(prompts, completions, 9) == [[1, 3], [0, 2]]
    assert micro_batches(prompts, completions, 1) == [[1], [3], [0], [2]]  # too long: alone
    assert micro_batches([], [], 8) == []


def test_micro_batches_keep_every_row_and_the_budget():
    lengths = torch.randint(1, 60, (200,), generator=torch.Generator().manual_seed(0)).tolist()
    prompts = [[i // 10] * 20 for i in range(200)]
    batches = micro_batches(prompts, [[5] * n for n in lengths], 512)
    assert sorted(row for batch in batches for row in batch) == list(range(200))
    for batch in batches:
        assert sum(lengths[i] for i in batch) + 20 * len({i // 10 for i in batch}) <= 512


def test_check_head_names_models_that_change_their_logits():
    class ScaledLlama(LlamaForCausalLM):
        def forward(self, *args, **kwargs):
            out = super().forward(*args, **kwargs)
            out.logits = 30 * torch.tanh(out.logits / 30)
            return out

    model = ScaledLlama(make_model().config)
    nn.init.normal_(model.lm_head.weight)
    with pytest.raises(UserError, match="ScaledLlama"):
        check_head(model)
