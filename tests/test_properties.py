"""What must hold of any input: advantages, losses, pass@k, memories, grading, config names."""

import copy
import itertools
import json
import math
import os
import subprocess
import sys
from collections import OrderedDict, deque
from dataclasses import dataclass, fields, replace

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from rollout_batches import rollouts, saved_and_loaded

from paperlib.errors import UserError
from paperlib.evaluation.passk import pass_at_k
from paperlib.experiments.recipes import METHODS, recipe
from paperlib.files import short_hash
from paperlib.methods.baselines import Correctness
from paperlib.methods.episodic_memory import EpisodicMemory
from paperlib.methods.meds import ClusterPenalty, Meds
from paperlib.rl.config import RunConfig
from paperlib.rl.objective import group_advantages, groups_without_spread, policy_loss
from paperlib.tasks.grading import MODES, extract_answer, find_answer, grade_all

REWARD = st.floats(-3, 3, allow_nan=False, width=32)
GROUPS = st.integers(2, 6).flatmap(
    lambda size: st.tuples(
        st.just(size),
        st.lists(st.lists(REWARD, min_size=size, max_size=size), min_size=1, max_size=3),
    )
)


def advantages(rewards, size, scale=True, epsilon=1e-4):
    values = torch.tensor(rewards, dtype=torch.float64)
    return group_advantages(values, size, scale_rewards=scale, advantage_epsilon=epsilon).double()


@given(GROUPS, st.booleans(), st.randoms(use_true_random=False))
def test_advantages_follow_a_permutation_within_groups_and_of_groups(groups, scale, rng):
    size, rows = groups
    orders = [rng.sample(range(size), size) for _ in rows]
    places = rng.sample(range(len(rows)), len(rows))
    order = [place * size + i for place in places for i in orders[place]]
    flat = list(itertools.chain(*rows))
    expected = advantages(flat, size, scale)[order]
    assert torch.allclose(advantages([flat[i] for i in order], size, scale), expected, atol=1e-6)


@given(GROUPS, st.booleans(), st.floats(-5, 5))
def test_advantages_are_centred_bounded_and_blind_to_a_shift(groups, scale, shift):
    size, rows = groups
    found = advantages(sum(rows, []), size, scale)
    sums = found.reshape(-1, size).sum(1)
    assert torch.allclose(sums, torch.zeros_like(sums), atol=1e-4)
    if scale:  # of n numbers none is further than (n - 1) / sqrt(n) standard deviations (ddof 1)
        assert found.abs().max() <= (size - 1) / math.sqrt(size) + 1e-5
    for row in rows:  # where a shift takes no digits away
        assume(max(row) == min(row) or max(row) - min(row) > 1e-6)
    shifted = advantages([r + shift for r in sum(rows, [])], size, scale)
    assert torch.allclose(shifted, found, atol=1e-4)


@given(
    st.lists(st.floats(-1, 1), min_size=2, max_size=4), st.integers(2, 16), st.booleans(),
    st.sampled_from([0.0, 1e-8, 1e-4]),
)
def test_equal_sums_in_any_order_of_terms_have_no_advantage(terms, size, scale, epsilon):
    """0.1 + 0.2 + 0.3 and 0.3 + 0.2 + 0.1 differ in the last bit; Adam would make a step of it."""
    orders = itertools.islice(itertools.cycle(itertools.permutations(terms)), size)
    rewards = [sum(order) for order in orders]
    assert (advantages(rewards, size, scale, epsilon) == 0).all()
    assert groups_without_spread(torch.tensor(rewards, dtype=torch.float64), size).all()


@given(
    st.integers(0, 2**31), st.lists(st.integers(0, 7), min_size=1, max_size=8),
    st.sampled_from(["grpo", "dapo", "dr_grpo"]), st.sampled_from([0.0, 0.1]),
    st.sampled_from([None, 3.0]), st.randoms(use_true_random=False),
)
def test_any_split_into_micro_batches_sums_to_the_mini_batch(seed, lengths, kind, beta, dual, rng):
    """Rows in any order, any cut, each part as wide as its own longest row."""
    g = torch.Generator().manual_seed(seed)
    rows, width = len(lengths), max(lengths)
    old = -2 * torch.rand(rows, width, generator=g, dtype=torch.float64)
    new = old + torch.randn(rows, width, generator=g, dtype=torch.float64)
    reference = old + torch.randn(rows, width, generator=g, dtype=torch.float64)
    credit = torch.randn(rows, generator=g, dtype=torch.float64)
    mask = torch.arange(width) < torch.tensor(lengths)[:, None]
    options = dict(
        epsilon=0.2, epsilon_high=0.28, loss_type=kind, num_sequences=rows,
        num_tokens=sum(lengths), max_completion_length=9, beta=beta, dual_clip=dual,
    )

    def gradient(parts):
        logps = new.clone().requires_grad_()
        total, counted = 0.0, 0.0
        for part in parts:
            wide = slice(0, max(lengths[i] for i in part))
            loss, stats = policy_loss(
                logps[part][:, wide], old[part][:, wide], credit[part], mask[part][:, wide],
                **options, ref_logps=reference[part][:, wide],
            )
            loss.backward()
            total, counted = total + loss.item(), counted + float(stats["kl"] + stats["clip_low"])
        return total, counted, logps.grad

    order = rng.sample(range(rows), rows)
    cuts = sorted(rng.sample(range(1, rows), rng.randint(0, rows - 1)))
    parts = [order[a:b] for a, b in itertools.pairwise([0, *cuts, rows])]
    whole, split = gradient([list(range(rows))]), gradient(parts)
    assert split[:2] == pytest.approx(whole[:2], rel=1e-9, abs=1e-12)
    assert torch.allclose(split[2], whole[2], rtol=1e-9, atol=1e-12)
    assert (whole[2][~mask] == 0).all()


@given(st.integers(1, 400).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n))), st.data())
def test_pass_at_k_is_bounded_monotone_and_exact_at_its_ends(counts, data):
    n, c = counts
    k = data.draw(st.integers(1, n))
    value = pass_at_k(n, c, k)
    assert 0.0 <= value <= 1.0
    assert pass_at_k(n, c, 1) == pytest.approx(c / n)
    assert pass_at_k(n, c, n) == float(c > 0)
    exact = 1 - math.comb(n - c, k) / math.comb(n, k)
    assert value == pytest.approx(exact, abs=1e-9)
    if k < n:
        assert pass_at_k(n, c, k + 1) >= value - 1e-12
    if c < n:
        assert pass_at_k(n, c + 1, k) >= value - 1e-12


WRITES = st.lists(st.tuples(st.integers(0, 5), st.floats(-4, 4, width=32)), max_size=40)


@given(WRITES, st.integers(1, 4), st.integers(1, 3), st.integers(0, 40), st.integers(1, 5))
def test_a_memory_holds_the_newest_of_the_newest_queries(writes, queries, responses, cut, size):
    """Against a dictionary of rings; several written at once, saved and loaded on the way."""
    memory = EpisodicMemory(1, max_queries=queries, max_responses=responses)
    model: OrderedDict[str, deque] = OrderedDict()
    for start in range(0, len(writes), size):
        if start <= cut < start + size:
            state = saved_and_loaded(memory.state_dict())
            memory = EpisodicMemory(1, max_queries=queries, max_responses=responses)
            memory.load_state_dict(state)
        keys, values = zip(*writes[start : start + size], strict=True)
        memory.write(list(map(str, keys)), torch.tensor(keys).float()[:, None],
                     torch.tensor(values)[:, None])  # fmt: skip
    for key, value in writes:
        if str(key) not in model:
            if len(model) == queries:
                model.popitem(last=False)
            model[str(key)] = deque(maxlen=responses)
        model[str(key)].append(value)
    assert set(memory.keys) == set(model) and len(memory) == len(model) <= queries
    for key, ring in model.items():
        row = memory.keys.index(key)
        held = memory.responses[row][:, 0].tolist()
        assert sorted(held) == sorted(ring) and len(held) == memory.counts[row]
        assert memory.centroid(torch.tensor([row])).item() == pytest.approx(
            np.mean(ring), abs=1e-5)
    found = memory.nearest(torch.zeros(1, 1), 3, "l2")[0].tolist()
    assert [abs(float(memory.keys[row])) for row in found] == sorted(
        abs(float(key)) for key in model)[:3]


VISITS = st.lists(
    st.lists(st.tuples(st.booleans(), st.integers(0, 3)), min_size=4, max_size=4),
    min_size=1, max_size=4,
)


@settings(max_examples=25)
@given(VISITS, st.booleans())
def test_meds_remembers_each_wrong_answer_and_a_copy_goes_on_alike(visits, released):
    kind = Meds.released if released else Meds.paper
    term, copied, wrong = ClusterPenalty(kind()), ClusterPenalty(kind()), 0
    for step, group in enumerate(visits, 1):
        # angle of the feature, none for the last kind: no final answer
        logits = np.array([[0, 0, math.cos(a), math.sin(a)] if a < 3 else [np.nan] * 4
                           for _, a in group], dtype=np.float32)
        batch = rollouts("xxxx", step=step, accuracy=[ok for ok, _ in group], layer_logits=logits)
        loaded = ClusterPenalty(kind())
        loaded.load_state_dict(saved_and_loaded(term.state_dict()))
        copied = copy.deepcopy(copied)
        rewards = term(batch)
        wrong += sum(not ok and a < 3 for ok, a in group)
        for other in (loaded, copied):
            assert rewards.tolist() == other(batch).tolist()
            assert term.last_sizes.tolist() == other.last_sizes.tolist()
        assert ((rewards <= 0) & (rewards >= -term.settings.beta)).all()
        assert all(r == 0 for r, (ok, a) in zip(rewards, group, strict=True) if ok or a == 3)
    assert sum(map(len, term.memory.values())) == wrong


PIECES = st.sampled_from([
    "\\boxed{", "}", "{", "\\frac{1}{2}", "<answer>", "</answer>", "<think>", "</think>", "$", "$$",
    "####", "7", "1,000", "\\text{", "^", "_", "\\", "%", "-", ".", "e6", "x", " ", "\n", "(", "]",
    "\\begin{pmatrix}", "\ud800", "\x00", "∞", "\\infty", "=", "<", ">", "!", "|", "٣",
])  # fmt: skip


@settings(max_examples=80)
@given(st.lists(st.one_of(st.text(max_size=8), st.lists(PIECES, max_size=10).map("".join)),
                min_size=1, max_size=4), st.sampled_from(["7", "\\frac{1}{2}", "x>4", "Leon", ""]))
def test_grading_never_raises_and_a_batch_is_its_single_verdicts(texts, gold):
    for mode in MODES:
        verdicts = grade_all(texts, [gold] * len(texts), mode)
        assert all(isinstance(verdict, bool) for verdict in verdicts)
        assert verdicts[0] == grade_all(texts[:1], [gold], mode)[0]
    assert grade_all([], []) == []
    for text in texts:
        answer, span = extract_answer(text), find_answer(text)
        assert answer is None or isinstance(answer, str)
        assert (answer is None) == (span is None)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats(-9, 9) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner,
                                                                max_size=4),
    max_leaves=8,
)


def shuffled(value, rng):
    if isinstance(value, dict):
        items = [(key, shuffled(item, rng)) for key, item in value.items()]
        rng.shuffle(items)
        return dict(items)
    return [shuffled(item, rng) for item in value] if isinstance(value, list) else value


@given(JSON, st.randoms(use_true_random=False))
def test_a_hash_knows_no_order_of_fields_but_every_value(value, rng):
    assert short_hash(shuffled(value, rng)) == short_hash(value)
    assert short_hash(json.loads(json.dumps(value))) == short_hash(value)
    assert short_hash([value, 1]) != short_hash([value, True])
    assert short_hash({"a": value}) != short_hash({"b": value})


def test_each_field_of_a_config_is_in_its_name_and_the_order_of_fields_is_not():
    config = recipe("memory_r", "Memory-R+", "tiny", 0)
    values = {f.name: getattr(config, f.name) for f in fields(config)}
    backwards = dict(reversed(list(values.items())))
    assert RunConfig(**backwards) == config and RunConfig(**backwards).hash == config.hash
    other = {
        "loss_type": "dr_grpo", "precision": "bf16", "lr_scheduler_type": "constant_with_warmup",
        "preset": "released", "engine": "trl", "dual_clip": 7.0, "mini_batches": 2, "top_p": 0.5,
        "terms": config.terms[:1],
    }
    for name, value in values.items():
        changed = other.get(name)
        if changed is None:
            changed = not value if isinstance(value, bool) else (
                value + 1 if isinstance(value, int | float) else f"{value}x")
        assert changed != value and replace(config, **{name: changed}).hash != config.hash, name


def test_one_and_one_point_zero_are_one_setting():
    config = recipe("meds", "MEDS", "tiny", 0)
    whole = {f.name: 1 for f in fields(config) if "float" in str(f.type)} | {"entropy_alpha": 0}
    terms = [Correctness(), ClusterPenalty(Meds(alpha=1, beta=2, near_identical=0))]
    as_int = replace(config, **whole, terms=tuple(terms))
    terms[1] = ClusterPenalty(Meds(alpha=1.0, beta=2.0, near_identical=0.0))
    as_float = replace(config, **{n: float(v) for n, v in whole.items()}, terms=tuple(terms))
    assert as_int == as_float and as_int.name == as_float.name
    assert replace(as_int, seed=1).name != as_int.name


def test_a_config_has_one_name_in_every_process():
    code = ("from paperlib.experiments.recipes import recipe, METHODS\n"
            "for paper in METHODS:\n for method in METHODS[paper]:\n"
            "  print(recipe(paper, method, 'tiny', 3).name)")  # fmt: skip
    env = {"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONHASHSEED": "12345"}
    names = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True
    ).stdout.split()
    ours = [recipe(p, m, "tiny", 3).name for p in METHODS for m in METHODS[p]]
    assert names == ours and len(set(ours)) == len(ours)


def test_a_term_whose_setting_has_no_name_is_refused():
    @dataclass(frozen=True)
    class Scored:
        score: object = len

    config = recipe("meds", "DAPO", "tiny", 0)
    with pytest.raises(UserError, match="Scored.*has a setting that is no number, text"):
        _ = replace(config, terms=(Scored(),)).name
