import math

import pytest
import torch
from test_logps import CLASSES

import paperlib.rl.sampling as sampling
from paperlib.errors import UserError
from paperlib.rl import cache
from paperlib.rl.attention import takes_layouts
from paperlib.rl.sampling import sample_groups

PROMPTS = [[3, 4, 5, 6, 7, 8], [9], [10, 11], [12, 13, 14]]
EOS = [1, 2, 5]


def make_model(kind="llama", tied=False, **changes):
    config_class, model_class = CLASSES[kind]
    torch.manual_seed(1)
    settings = dict(
        vocab_size=24, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, head_dim=8, tie_word_embeddings=tied,
        max_position_embeddings=256, initializer_range=0.4, pad_token_id=0, eos_token_id=1,
    )
    model = model_class(config_class(**settings | changes)).eval()
    assert takes_layouts(model)  # tried now, so that no test counts the passes of it
    return model


def sample(model, prompts=PROMPTS, num_generations=1, seed=0, **changes):
    settings = dict(
        max_completion_length=20, temperature=1.0, top_p=1.0, eos_token_ids=EOS, pad_token_id=0,
        seed=seed,
    )
    return sample_groups(model, prompts, num_generations, **settings | changes)


def with_eos_cut(ids, eos):
    ends = [i for i, token in enumerate(ids) if token in eos]
    return ids[: ends[0] + 1] if ends else ids


@pytest.mark.parametrize("kind", CLASSES)
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("length", [20, 90])  # 90: the cache grows by a block
def test_greedy_equals_generate(kind, tied, length):
    model = make_model(kind, tied)
    width = max(map(len, PROMPTS))
    ids = torch.tensor([[0] * (width - len(p)) + p for p in PROMPTS])
    mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in PROMPTS])
    free = sample(model, temperature=0, max_completion_length=length, eos_token_ids=[])
    # end tokens that do occur: what one row says in the middle
    eos = sorted({free.completion_ids[0][length // 3], free.completion_ids[1][length // 4]})
    ours = sample(model, temperature=0, max_completion_length=length, eos_token_ids=eos)
    theirs = model.generate(
        input_ids=ids, attention_mask=mask, do_sample=False, max_new_tokens=length,
        eos_token_id=eos, pad_token_id=0,
    )[:, width:]
    expected = [with_eos_cut(row, eos) for row in theirs.tolist()]
    assert ours.completion_ids == expected
    assert not ours.truncated.all()
    assert ours.truncated.tolist() == [row[-1] not in eos for row in expected]


@pytest.mark.parametrize("kind", CLASSES)
@pytest.mark.parametrize("temperature", [1.0, 0.5, 0])
def test_logps_are_those_of_a_full_forward(kind, temperature):
    model = make_model(kind)
    samples = sample(model, num_generations=3, temperature=temperature, top_p=0.8)
    prompts = [prompt for prompt in PROMPTS for _ in range(3)]
    for prompt, ids, logps in zip(prompts, samples.completion_ids, samples.logps, strict=True):
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([prompt + ids])).logits[0, len(prompt) - 1 : -1]
        expected = (logits / (temperature or 1.0)).log_softmax(-1)
        expected = expected[torch.arange(len(ids)), torch.tensor(ids)]
        assert logps.dtype == torch.float32 and logps.shape == (len(ids),)
        assert torch.allclose(logps, expected, atol=1e-5)


def first_token_frequencies(model, prompt, n=20_000, **changes):
    samples = sample(model, [prompt], n, max_completion_length=1, **changes)
    tokens = torch.tensor([ids[0] for ids in samples.completion_ids])
    return torch.bincount(tokens, minlength=24)


@torch.no_grad()
def next_token_probabilities(model, prompt, temperature=1.0):
    logits = model(input_ids=torch.tensor([prompt])).logits[0, -1]
    return (logits / temperature).softmax(-1)


def chi_square(counts, probabilities):
    expected = probabilities * counts.sum()
    common = expected >= 5  # rare tokens together in one cell
    counts = torch.cat([counts[common], counts[~common].sum()[None]]).double()
    expected = torch.cat([expected[common], expected[~common].sum()[None]]).double()
    used = expected > 1
    return float(((counts - expected) ** 2 / expected)[used].sum()), int(used.sum()) - 1


@pytest.mark.parametrize("temperature", [1.0, 2.0])
def test_first_tokens_follow_the_model(temperature):
    model = make_model(initializer_range=0.2)
    counts = first_token_frequencies(model, PROMPTS[0], temperature=temperature)
    probabilities = next_token_probabilities(model, PROMPTS[0], temperature)
    value, freedom = chi_square(counts, probabilities)
    assert freedom >= 10
    assert value < freedom + 4 * (2 * freedom) ** 0.5  # mean + 4 standard deviations


def test_top_p_excludes_the_tail_and_keeps_proportions():
    model = make_model(initializer_range=0.2)
    probabilities = next_token_probabilities(model, PROMPTS[0])
    ordered, order = probabilities.sort(descending=True)
    size = int((ordered.cumsum(0) < 0.7).sum()) + 1  # smallest set that reaches 0.7
    kept = torch.zeros(24).scatter(0, order[:size], ordered[:size])
    counts = first_token_frequencies(model, PROMPTS[0], top_p=0.7)
    assert 1 < size < 24
    assert (counts > 0).equal(kept > 0)
    value, freedom = chi_square(counts, kept / kept.sum())
    assert value < freedom + 4 * (2 * max(freedom, 1)) ** 0.5
    # a top_p below every probability leaves the likeliest token
    assert (first_token_frequencies(model, PROMPTS[0], n=100, top_p=1e-6) > 0).nonzero() == order[0]


def test_dropping_rows_changes_nothing(monkeypatch):
    model = make_model()
    dropped = sample(model, num_generations=8)
    lengths = {len(ids) for ids in dropped.completion_ids}
    assert len(lengths) > 4  # rows end at many different steps
    monkeypatch.setattr(sampling, "DROP_FRACTION", 2.0)
    kept = sample(model, num_generations=8)
    assert kept.completion_ids == dropped.completion_ids
    assert torch.equal(kept.truncated, dropped.truncated)
    assert torch.allclose(torch.cat(kept.logps), torch.cat(dropped.logps), atol=1e-5)


@pytest.mark.parametrize("kind", CLASSES)
@pytest.mark.parametrize("at_once", [1, 3, 5, 8, 13])  # a part may end within a group of 4
def test_rows_sampled_in_parts_are_those_sampled_together(kind, at_once, monkeypatch):
    model, passes = make_model(kind), []
    model.model.register_forward_hook(
        lambda m, a, k, out: passes.append((len(k["input_ids"]), int(k["position_ids"].min()))),
        with_kwargs=True,
    )
    whole = sample(model, num_generations=4, layer_logits="normed")
    assert [prompts for prompts, first in passes if not first] == [4]  # by default in one piece
    monkeypatch.setenv("PAPERLIB_CACHE_TOKENS", str(at_once * (6 + 20) + 5))
    passes.clear()
    parts = sample(model, num_generations=4, layer_logits="normed")
    rows = at_once - at_once % 4 if at_once > 4 else at_once
    assert sum(not first for _, first in passes) == math.ceil(16 / rows)
    assert max(rows_in for rows_in, first in passes if first) <= rows
    assert parts.completion_ids == whole.completion_ids and len(set(map(len, parts.logps))) > 4
    assert torch.equal(parts.truncated, whole.truncated) and parts.truncated.dtype == torch.bool
    for one, other in zip(parts.logps, whole.logps, strict=True):
        assert torch.allclose(one, other, atol=1e-5)
    for one, other, ids in zip(parts.layer_logits, whole.layer_logits, parts.completion_ids,
                               strict=True):  # fmt: skip
        assert torch.allclose(one[: len(ids)], other[: len(ids)], atol=1e-4)


def test_how_many_rows_fit(monkeypatch):
    model = make_model()
    size = cache.token_bytes(model)
    assert size == 2 * 2 * 2 * 8 * 4  # keys and values x layers x heads x head size x float32
    shape = []
    model.model.register_forward_hook(lambda m, a, k, out: shape.append(
        sum(2 * layer.keys[:, :, : layer.length].numel() * 4 for layer in k["cache"].layers)
    ), with_kwargs=True)
    sample(model, [PROMPTS[0]], max_completion_length=2, eos_token_ids=[])
    assert shape == [size * 6, size]  # the prompt once, one token; the last is never run
    assert cache.free_bytes(torch.device("cpu")) is None
    assert cache.rows_at_once(10, 100, size, None) == 10
    assert cache.rows_at_once(10**9, 100, size, None) == cache.CPU_BYTES // (100 * size)
    assert cache.rows_at_once(10, 100, size, 15 * 100 * size) == 7  # half of the free memory
    assert cache.rows_at_once(10, 100, size, -1.0) == 1
    gpu = {"memory_reserved": 700, "memory_allocated": 500, "mem_get_info": (1000, 5000)}
    for name, value in gpu.items():
        monkeypatch.setattr(torch.cuda, name, lambda device, value=value: value)
    assert cache.free_bytes(torch.device("cuda")) == 1200  # with what torch holds and does not use
    for wrong in ("0", "-5", "many", "1.5"):
        monkeypatch.setenv("PAPERLIB_CACHE_TOKENS", wrong)
        with pytest.raises(UserError, match=f"PAPERLIB_CACHE_TOKENS is '{wrong}'; it must be a w"):
            sample(model)


def test_a_completion_depends_on_seed_and_prompt_alone():
    model = make_model()
    many = sample(model, num_generations=4).completion_ids
    assert sample(model, PROMPTS[2:], num_generations=4).completion_ids == many[8:]
    assert sample(model, PROMPTS[2:3], num_generations=2).completion_ids == many[8:10]
    assert sample(model, num_generations=4, seed=1).completion_ids != many
    # rows of a prompt, and equal prompts, have numbers of their own
    equal = sample(model, [PROMPTS[0]] * 2, 8, eos_token_ids=[]).completion_ids
    assert len(set(map(tuple, equal))) == 16


def test_random_numbers_are_uniform_and_independent():
    seeds = torch.tensor([3, 1000, 2**55])[:, None] + torch.arange(100)  # neighbours, too
    numbers = torch.stack([sampling.uniform(seeds.flatten(), step) for step in range(200)])
    assert numbers.min() >= 0 and numbers.max() < 1
    cells = torch.histc(numbers, 50, 0, 1)
    assert float(((cells - 1200) ** 2 / 1200).sum()) < 49 + 4 * 98**0.5
    for one, other in ((numbers[1:], numbers[:-1]), (numbers[:, 1:], numbers[:, :-1])):
        together = torch.corrcoef(torch.stack([one.flatten(), other.flatten()]))[0, 1]
        assert abs(float(together)) < 4 / 60_000**0.5
    # SplitMix64 from state 0, its first outputs as published: 16294208416658607535, ...
    first = [16294208416658607535, 7960286522194355700, 487617019471545679]
    drawn = [float(sampling.uniform(torch.tensor([0]), step)) for step in range(3)]
    assert drawn == [(number >> 40) / 2**24 for number in first]


def test_truncated_and_end_tokens():
    samples = sample(make_model(), num_generations=8, max_completion_length=6)
    assert samples.truncated.dtype == torch.bool and 0 < samples.truncated.sum() < 32
    for ids, truncated in zip(samples.completion_ids, samples.truncated.tolist(), strict=True):
        assert not any(token in EOS for token in ids[:-1])
        assert (ids[-1] in EOS) != truncated
        assert len(ids) == 6 or not truncated
    assert samples.prompt_ids == PROMPTS


def test_longer_limits_only_continue():
    model = make_model()
    short = sample(model, max_completion_length=5)
    long = sample(model, max_completion_length=20)
    assert [ids[:5] for ids in long.completion_ids] == short.completion_ids


def test_mode_is_restored_and_dropout_is_off():
    model = make_model(attention_dropout=0.5).train()
    one, two = sample(model), sample(model)
    assert model.training
    assert one.completion_ids == two.completion_ids
    assert not one.logps[0].is_inference()


def test_prompts_run_once_and_only_last_logits_are_computed():
    model = make_model()
    rows, heads = [], []
    model.model.register_forward_hook(
        lambda m, args, kwargs, out: rows.append(tuple(kwargs["input_ids"].shape)),
        with_kwargs=True,
    )
    model.lm_head.register_forward_hook(lambda m, args, out: heads.append(out.shape[:2]))
    sample(model, num_generations=5, eos_token_ids=[], max_completion_length=3)
    assert rows == [(4, 6), (20, 1), (20, 1)]
    assert heads == [(4, 1), (20, 1), (20, 1)]


@pytest.mark.parametrize("temperature", [1.0, 0])
def test_diverged_weights_are_reported(temperature):
    model = make_model()
    with torch.no_grad():
        model.lm_head.weight.fill_(float("nan"))
    with pytest.raises(UserError, match="NaN"):
        sample(model, temperature=temperature)
    assert not model.training
