"""Numbers that are none, and batches with nothing in them: named with step and sample, skipped and
counted or refused, warned of live, and never a hang."""

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest
import torch
from fault_world import both_memories
from rollout_batches import rollouts
from safetensors.torch import load_file

from paperlib.errors import UserError
from paperlib.experiments.recipes import recipe
from paperlib.files import read_json, read_jsonl
from paperlib.methods.meds import ClusterPenalty
from paperlib.methods.memory_r import Explore, MemoryR
from paperlib.methods.rollouts import call_term
from paperlib.rl import collect as collect_module
from paperlib.rl import trl_engine
from paperlib.rl import update as update_module
from paperlib.rl.logs import STALL_STEPS, RunLog
from paperlib.rl.sampling import Samples
from paperlib.rl.train import train
from paperlib.tasks.grading import grade
from paperlib.tasks.tiny import MODEL_DIR

pytestmark = pytest.mark.usefixtures("one_thread")
TRAIN = {"ours": train, "trl": trl_engine.train}


def short(**changes):
    """A run of few and short steps, without any memory, in which groups have spread."""
    config = recipe("meds", "GRPO", "smoke", 0)
    small = {"prompts_per_step": 2, "num_generations": 4, "max_completion_length": 4, "beta": 0.0,
             "max_steps": 2, "save_steps": 1, "terms": (Lengths(),), "warmup_steps": 0,
             "mini_batches": 1}  # fmt: skip
    return replace(config, **{**small, **changes})


@dataclass(frozen=True)
class Lengths:
    """Pays what the table of rewards says, by the rollout's place in its group."""

    table: tuple[float, ...] = (0.0, 1.0, 2.0, 3.0)
    name: ClassVar[str] = "place"

    def __call__(self, rollouts):
        return np.resize(self.table, len(rollouts))


def features(texts, **changes):
    """Rollouts of as many problems as texts, with eight layer logits each."""
    names, ones = [f"p{i}" for i in range(len(texts))], np.ones((len(texts), 8), dtype=np.float32)
    return rollouts(texts, **{"problem_ids": names, "layer_logits": ones, **changes})


def weights_unchanged(folder, step):
    after = load_file(folder / "checkpoints" / f"{step:06d}" / "model.safetensors")
    before = load_file(MODEL_DIR / "model.safetensors")
    return all(torch.equal(after[key], before[key]) for key in before)


# -- loss, reward, feature, embedding, logits ----------------------------------------------------


@pytest.mark.parametrize("cause", ["reward", "log-probability"])
def test_an_update_without_a_finite_gradient_is_skipped_counted_and_explained(
    tmp_path, capsys, monkeypatch, cause
):
    terms = (Lengths(),)
    if cause == "reward":  # finite itself, but its advantage is not, in float32
        terms = (Lengths((0.0, 1.0, -1e100, 1e100)),)
    else:
        real = update_module.completion_logps

        def broken(*args, **kwargs):
            logps, entropy, mask = real(*args, **kwargs)
            return logps + torch.tensor([0.0, 0.0, float("nan"), 0.0])[:, None], entropy, mask

        monkeypatch.setattr(update_module, "completion_logps", broken)
    config = short(terms=terms, scale_rewards=False, prompts_per_step=1, max_steps=1)
    train(config, tmp_path / "run", device="cpu", progress=False)
    (row,) = read_jsonl(tmp_path / "run" / "metrics.jsonl")
    assert (row["updates"], row["skipped_updates"]) == (0, 1)
    assert weights_unchanged(tmp_path / "run", 1)
    said = capsys.readouterr().out
    assert said.startswith("run: step 1: an update was skipped, its loss or gradient was not fin")
    what = "an advantage" if cause == "reward" else "a log-probability"
    assert re.search(rf"rollout 2 \(problem \S+\) has {what}.*that is not", said)


@pytest.mark.parametrize("engine", TRAIN)
def test_a_run_that_only_skips_stops_as_configured(tmp_path, engine):
    config = short(terms=(Lengths((0.0, 1.0, -1e100, 1e100)),), scale_rewards=False, max_steps=4,
                   max_skipped_steps=2, engine=engine)  # fmt: skip
    with pytest.raises(UserError, match="step 2: no gradient was finite for 2 steps on end"):
        TRAIN[engine](config, tmp_path, device="cpu", progress=False)
    rows = read_jsonl(tmp_path / "metrics.jsonl")
    assert [(row["updates"], row["skipped_updates"]) for row in rows] == [(0, 1), (0, 1)]
    assert not (tmp_path / "complete.json").exists()
    assert "max_skipped_steps" not in short().to_dict()  # stored runs keep their names
    assert short(max_skipped_steps=2).to_dict()["max_skipped_steps"] == 2
    with pytest.raises(UserError, match="max_skipped_steps is 0; it must be at least 1"):
        short(max_skipped_steps=0)


class Others(Lengths):
    name = "others"


@dataclass(frozen=True)
class Returns:
    """A term that returns what ``make`` makes of a list of n numbers."""

    make: Callable
    name: ClassVar[str] = "user"

    def __call__(self, rollouts):
        return self.make([0.5 * i for i in range(len(rollouts))])


@pytest.mark.parametrize("make", [
    tuple, np.array, np.float32, pd.Series, lambda v: [np.float64(x) for x in v], torch.tensor,
    lambda v: torch.tensor(v, dtype=torch.bfloat16), lambda v: torch.tensor(v).half(),
    lambda v: torch.tensor(v, requires_grad=True) * 1, lambda v: [torch.tensor(x) for x in v],
    lambda v: [torch.tensor(x, dtype=torch.bfloat16, requires_grad=True) for x in v],
])
def test_rewards_of_any_number_type_are_taken(make):
    values = call_term(Returns(make), rollouts("abc"))
    assert values.dtype == np.float64 and values.tolist() == [0.0, 0.5, 1.0]


@pytest.mark.parametrize(("make", "says"), [
    (lambda v: (x for x in v), "generator <generator"), (lambda v: None, "NoneType None"),
    (lambda v: dict(enumerate(v)), "dict {0: 0.0, 1: 0.5, 2: 1.0}"), (lambda v: "abc", "str 'abc'"),
    (lambda v: ["0.5"] * 3, "list ['0.5', '0.5', '0.5']"), (lambda v: 0.5, "shape ()"),
    (lambda v: v[:2], "shape (2,); expected (3,) numbers in a list, an array or a tensor"),
    (lambda v: [0.0, np.nan, 0.0], "nan for rollout 1 (problem p1)"),
    (lambda v: [np.inf] * 3, "inf for rollout 0 (problem p0); 3 of 3 are not finite"),
    (lambda v: [[0.5], [0.5, 1.0], []], "list [[0.5], [0.5, 1.0], []]"),
    (lambda v: [0.5, None, 0.5], "list [0.5, None, 0.5]"), (lambda v: [v, v, v], "shape (3, 3)"),
    (lambda v: np.array(v) * 1j, "ndarray array("), (lambda v: torch.ones(3, 1), "shape (3, 1)"),
])
def test_rewards_that_are_no_numbers_are_named(make, says):
    with pytest.raises(UserError) as error:
        call_term(Returns(make), features("abc", step=7))
    assert f"reward term 'user' at step 7 returned {says}" in str(error.value)


@pytest.mark.parametrize("engine", TRAIN)
@pytest.mark.parametrize("each", [1.7e308, 1e200])  # their sum overflows; its variance does
def test_finite_rewards_whose_sum_is_not_are_named_with_their_terms(tmp_path, engine, each):
    terms = (Lengths((0.0, 1.0, each, 3.0)), Others((0.0, 0.0, each, 0.0)))
    with pytest.raises(UserError, match=r"step 1 sum to (inf|2e\+200) for rollout 2 .*'place' 1"
                                        r".*, 'others' 1.*; valid: up to 1e150"):  # fmt: skip
        config = short(terms=terms, engine=engine)
        TRAIN[engine](config, tmp_path, device="cpu", progress=False)


def test_weights_that_diverge_are_named_with_step_and_completion(tmp_path, monkeypatch):
    real, calls = collect_module.sample_groups, []

    def sample(model, *args, **kwargs):
        calls.append(1)
        if len(calls) == 2:
            with torch.no_grad():
                model.get_output_embeddings().weight[7] = float("inf")
        return real(model, *args, **kwargs)

    monkeypatch.setattr(collect_module, "sample_groups", sample)
    with pytest.raises(UserError, match="step 2, problems from .* on: .*NaN.*is completion 0 of"):
        train(short(), tmp_path, device="cpu", progress=False)
    assert [row["step"] for row in read_jsonl(tmp_path / "metrics.jsonl")] == [1]


def test_a_feature_that_is_not_finite_is_named_with_step_and_rollout():
    logits = np.ones((3, 8), dtype=np.float32)
    logits[1, 6] = np.inf
    with pytest.raises(UserError, match="'cluster_penalty' at step 7: .*the first is rollout 1"):
        call_term(ClusterPenalty(), features("abc", step=7, layer_logits=logits))


@pytest.mark.parametrize("bad", ["question", "response"])
def test_an_embedding_that_is_not_finite_is_named_and_never_remembered(bad):
    class Encoder:
        def encode(self, texts):
            vectors = torch.ones(len(texts), 4)
            vectors[1 if bad == "question" else len(texts) // 2 + 1, 2] = float("nan")
            return vectors

    term = Explore(MemoryR.paper())  # in its warm-up it only writes
    term.encoder = Encoder()
    with pytest.raises(UserError, match="'explore' at step 7: .*is rollout 1, problem p1"):
        call_term(term, features("abc", step=7))
    assert term.memory is None


# -- nothing to learn from -----------------------------------------------------------------------


def test_steps_that_teach_nothing_are_told_live_and_counted(tmp_path, capsys):
    """Every completion cut, and no group with spread; weights stay as they are."""
    steps = STALL_STEPS + 2
    config = short(terms=(Lengths((0.5,)),), max_steps=steps, save_steps=steps, weight_decay=0.0)
    train(config, tmp_path / "run", device="cpu", progress=False)
    rows = read_jsonl(tmp_path / "run" / "metrics.jsonl")
    assert [row["truncated"] for row in rows] == [1.0] * steps
    assert [row["groups_without_spread"] for row in rows] == [1.0] * steps
    said = capsys.readouterr().out.splitlines()
    where = f"for {STALL_STEPS} steps (now step {STALL_STEPS})"
    assert said == [  # once each, not at every step
        f"run: no group had spread in its rewards {where}; such steps teach nothing",
        f"run: every completion was cut at max_completion_length {where}; such steps teach nothing",
    ]
    assert weights_unchanged(tmp_path / "run", steps)


def test_a_stall_that_ends_and_comes_again_is_told_again(tmp_path, capsys):
    log = RunLog(tmp_path, 0, 99, progress=False, trackers=())
    for step in range(1, 4 * STALL_STEPS):
        log.step({"step": step, "groups_kept": 1, "truncated": float(step % (STALL_STEPS + 1) > 0)})
    log.close()
    assert capsys.readouterr().out.count("every completion was cut") == 3


def test_all_truncated_and_left_out_of_the_loss_with_both_memories(tmp_path):
    config = both_memories(max_completion_length=3, mask_truncated_completions=True, max_steps=3)
    train(config, tmp_path, device="cpu", progress=False)
    rows = read_jsonl(tmp_path / "metrics.jsonl")
    assert [(row["truncated"], row["loss"]) for row in rows] == [(1.0, 0.0)] * 3
    assert all(np.isfinite(list(row.values())).all() for row in rows)


@pytest.mark.parametrize("ids", [[2], []])
def test_a_model_that_ends_at_once_and_completions_of_nothing(tmp_path, monkeypatch, ids):
    def ends_at_once(model, prompt_ids, num_generations, **_):
        n = len(prompt_ids) * num_generations
        return Samples(prompt_ids, [list(ids)] * n, [torch.full((len(ids),), -9.0)] * n,
                       torch.zeros(n).bool(), torch.zeros(n, len(ids), 8))  # fmt: skip

    monkeypatch.setattr(collect_module, "sample_groups", ends_at_once)
    monkeypatch.setattr(collect_module, "end_tokens", lambda *_: {2})
    config = both_memories(max_steps=3)
    train(config, tmp_path, device="cpu", progress=False)
    rows = read_jsonl(tmp_path / "metrics.jsonl")
    assert read_json(tmp_path / "complete.json")["step"] == 3
    for row in rows:
        assert np.isfinite(list(row.values())).all()
        assert (row["length"], row["accuracy"], row["skipped_updates"]) == (len(ids), 0.0, 0)
        assert row["reward/explore"] == row["reward/exploit"] == row["reward/cluster_penalty"] == 0
    terms = torch.load(tmp_path / "checkpoints" / "000003" / "state.pt", weights_only=True)["terms"]
    assert terms["explore"]["memory"]["keys"] == []  # a text that says nothing is no mistake


# -- odd sizes -----------------------------------------------------------------------------------


@pytest.mark.parametrize("preset", ["paper", "released"])
def test_a_completion_of_5_000_digits(preset):
    """More than Python turns into an int (4,300), in every place that a number is looked for."""
    digits = "7" * 5000
    texts = [digits, f"<answer>{digits}</answer>", f"\\boxed{{{digits}}}",
             f"<reasoning>\n{digits}\n</reasoning>\n<answer>\n{digits}\n</answer>"]  # fmt: skip
    began = time.process_time()
    batch = features(texts, golds=[digits] * 4, lengths=np.full(4, 5000),
                     accuracy=np.array([grade(text, digits) for text in texts]))  # fmt: skip
    assert batch.accuracy[1:].all()  # equal text is equal, whatever its length
    for other in ("2", digits[:-1] + "8", digits + ".5", f"1/{digits}", f"{digits}x"):
        assert not any(grade(text, other) or grade(f"\\boxed{{{other}}}", digits) for text in texts)
    terms = [term for paper, method in (("memory_r", "Memory-R+"), ("meds", "MEDS"))
             for term in recipe(paper, method, "smoke", 0, preset).terms]  # fmt: skip
    for term in terms:
        assert np.isfinite(call_term(term, batch)).all(), term.name
    assert time.process_time() - began < 8
