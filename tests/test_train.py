"""The loop: exact resume, dynamic sampling, bad input, what the logs promise."""

import json
import shutil
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest
import torch
from fault_world import GLOSSARY, outcome_of

from paperlib.errors import UserError
from paperlib.experiments.recipes import recipe
from paperlib.files import read_json, read_jsonl
from paperlib.methods.baselines import Correctness
from paperlib.rl import collect as collect_module
from paperlib.rl import train as train_module
from paperlib.rl import update as update_module
from paperlib.rl.checkpoint import restore_rng, rng_state, save_state
from paperlib.rl.policy import load_policy
from paperlib.rl.sampling import Samples
from paperlib.rl.train import restore_terms, seed_everything, train
from paperlib.rl.trl_engine import train as trl_train
from paperlib.tasks.data import load_problems


@dataclass
class RepeatPenalty:
    """A term with a memory: pays less for an answer length it has seen often."""

    weight: float = 0.01
    name: ClassVar[str] = "repeat"

    def __post_init__(self):
        self.seen = torch.zeros(512)

    def __call__(self, rollouts):
        lengths = torch.as_tensor(rollouts.lengths)
        values = -self.weight * self.seen[lengths]
        self.seen += torch.bincount(lengths, minlength=512)
        # also draws from the global generators, which a resumed run must find as they were
        return (values + 1e-6 * torch.rand(len(lengths))).numpy() + 1e-6 * np.random.rand()

    def state_dict(self):
        return {"seen": self.seen}

    def load_state_dict(self, state):
        self.seen = state["seen"].clone()


def smoke(method="DAPO", **changes):
    paper = "memory_r" if method in ("R1", "Cosine") else "meds"
    small = {"num_generations": 4, "max_steps": 6, "save_steps": 3}  # what the numbers below mean
    return replace(recipe(paper, method, "smoke", 0), **{**small, **changes})


def stateful(**changes):
    config = smoke("MEDS", **{"save_steps": 2, **changes})
    return replace(config, terms=(*config.terms, RepeatPenalty()))


@pytest.fixture(scope="module")
def finished(tmp_path_factory, one_thread):
    folder = tmp_path_factory.mktemp("finished") / "run"
    train(stateful(), folder, progress=False)
    return folder


def interrupted(config, folder, module, train, step):
    """Begin a run, stop it in a step, and go on with it in another state of the generators."""
    real = module.write_rollouts

    def dies(target, rollouts, *rest):
        if rollouts.step == step:
            raise KeyboardInterrupt
        real(target, rollouts, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "write_rollouts", dies)
        with pytest.raises(KeyboardInterrupt):
            train(config, folder, device="cpu", progress=False)
    assert len(read_jsonl(folder / "metrics.jsonl")) == step - 1
    torch.manual_seed(99)
    np.random.seed(99)
    train(config, folder, device="cpu", progress=False)


@pytest.mark.parametrize("step", [2, 5])  # steps 2 and 4 write a checkpoint
def test_interrupted_and_resumed_is_uninterrupted(tmp_path, finished, step):
    """Bit for bit on the CPU; test_kills.py does it with SIGKILL."""
    interrupted(stateful(), tmp_path / "run", train_module, train, step)
    assert outcome_of(tmp_path / "run") == outcome_of(finished)


def test_a_finished_run_is_left_alone(finished):
    before = {p: p.stat().st_mtime_ns for p in finished.rglob("*")}
    train(stateful(), finished, progress=False)
    assert {p: p.stat().st_mtime_ns for p in finished.rglob("*")} == before


def test_logs_and_folder(finished):
    rows = read_jsonl(finished / "metrics.jsonl")
    assert [row["step"] for row in rows] == list(range(1, 7))
    names = {
        f"{key.split('/')[0]}/<term>" if key.startswith("reward") and "/" in key else key
        for row in rows for key in row
    }
    assert names == GLOSSARY  # every metric is explained, and none is promised in vain
    assert {"reward/repeat", "reward_nonzero/repeat"} <= rows[-1].keys()
    complete = read_json(finished / "complete.json")
    assert complete["reason"] == "finished" and complete["step"] == 6
    states = [p.parent.name for p in (finished / "checkpoints").glob("*/state.pt")]
    assert sorted(states) == ["000004", "000006"]
    assert len(list((finished / "checkpoints").glob("*/model.safetensors"))) == 3
    assert list((finished / "tensorboard").iterdir())
    for row in rows:
        frame = pd.read_parquet(finished / "rollouts" / f"{row['step']:06d}.parquet")
        assert frame["accuracy"].mean() == pytest.approx(row["accuracy"])
        assert frame.filter(like="reward/").sum(axis=1).to_numpy() == pytest.approx(frame["reward"])
        groups = frame.groupby(np.arange(len(frame)) // 4)
        assert (groups["accuracy"].nunique() == 2).all()  # DAPO keeps mixed groups only
        assert (groups["problem_id"].nunique() == 1).all()


def test_a_watch_speaks_after_each_step_and_after_a_resume(tmp_path, capsys):
    config, seen = smoke("GRPO", max_steps=4, save_steps=2), []

    def watch(rows):
        seen.append([row["step"] for row in rows])
        if len(rows) == 3 and len(seen) == 3:
            raise ZeroDivisionError("the watch is broken")
        return [f"warning {len(rows)}"]

    train(config, tmp_path, progress=False, watch=watch)
    assert seen == [[1], [1, 2], [1, 2, 3]]  # no more after its failure, but the run goes on
    said = capsys.readouterr().out.splitlines()
    assert said[:2] == [f"{tmp_path.name}: warning 1", f"{tmp_path.name}: warning 2"]
    assert len(said) == 3 and "ZeroDivisionError('the watch is broken')" in said[2]
    (tmp_path / "complete.json").unlink()
    shutil.rmtree(tmp_path / "checkpoints" / "000004")
    train(config, tmp_path, progress=False, watch=watch)
    assert seen[3:] == [[1, 2], [1, 2, 3], [1, 2, 3, 4]]  # what was before, then each new step
    assert "warning 4" in capsys.readouterr().out


def test_several_mini_batches_make_clipping_possible_and_one_never_does(tmp_path):
    fast = {"learning_rate": 3e-3, "max_steps": 3, "warmup_steps": 0}
    train(smoke("GRPO", **fast), tmp_path / "two", progress=False)
    train(smoke("R1", **fast), tmp_path / "one", progress=False)
    two, one = (pd.DataFrame(read_jsonl(tmp_path / n / "metrics.jsonl")) for n in ("two", "one"))
    assert (two["updates"] == 2).all() and (two["clip_low"] + two["clip_high"]).sum() > 0
    assert (one["updates"] == 1).all() and (one["clip_low"] + one["clip_high"]).sum() == 0
    assert one["ratio_max"].max() == pytest.approx(1, abs=1e-4)  # first update: on policy
    assert (one["kl"].iloc[1:] > 0).all() and one["kl"].iloc[0] == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("method", ["R1", "DAPO"])
def test_micro_batches_do_not_change_the_outcome(tmp_path, method):
    ends = []
    for budget in (10**6, 300):
        folder = tmp_path / str(budget)
        config = smoke(method, max_steps=2, save_steps=2, micro_batch_tokens=budget)
        train(config, folder, progress=False)
        ends.append(pd.DataFrame(read_jsonl(folder / "metrics.jsonl")))
    for column in ("loss", "grad_norm", "entropy", "kl", "clip_low", "accuracy"):
        assert ends[0][column].to_numpy() == pytest.approx(ends[1][column].to_numpy(), rel=1e-3,
                                                           abs=1e-6), column


def test_bf16_and_gradient_checkpointing(tmp_path):
    plain = smoke("R1", max_steps=2, save_steps=2)
    for name, changes in {
        "plain": {}, "bf16": {"precision": "bf16"}, "gc": {"gradient_checkpointing": True},
    }.items():
        train(replace(plain, **changes), tmp_path / name, progress=False)
    plain, bf16, checkpointed = (
        pd.DataFrame(read_jsonl(tmp_path / n / "metrics.jsonl")) for n in ("plain", "bf16", "gc")
    )
    # checkpointing runs whole rows instead of sharing prompts: equal up to rounding
    assert checkpointed["grad_norm"].to_numpy() == pytest.approx(
        plain["grad_norm"].to_numpy(), rel=1e-4
    )
    assert bf16["ratio_max"].max() == pytest.approx(1, abs=1e-3)
    assert bf16["grad_norm"][0] == pytest.approx(plain["grad_norm"][0], rel=0.1)


@pytest.mark.parametrize(("truncated", "loss"), [([False, True], 3.0), ([True, True], 0.0)])
def test_masked_completions_are_in_no_denominator(monkeypatch, truncated, loss):
    """Losses 2 and 4 of the kept completion, 9 of the other one's tokens; mean over tokens."""
    logps = torch.tensor([[2.0, 4.0, 1.0], [9.0, 9.0, 9.0]]).log().requires_grad_()
    mask = torch.tensor([[True, True, False], [True, True, True]])
    monkeypatch.setattr(update_module, "_forward", lambda config, model, batch, rows: (
        logps[rows], torch.zeros(len(rows), 3), mask[rows]))
    batch = SimpleNamespace(
        rollouts=SimpleNamespace(truncated=np.array(truncated)), prompt_ids=[[5], [5]],
        completion_ids=[[1, 2], [1, 2, 3]], logps=[torch.zeros(2), torch.zeros(3)],
    )
    config = smoke("DAPO", mask_truncated_completions=True)
    found, _ = update_module._backward(config, None, None, batch, -torch.ones(2), [0, 1])
    assert found == pytest.approx(loss) and torch.isfinite(logps.grad).all()
    assert (logps.grad[1] == 0).all()


# --- dynamic sampling -----------------------------------------------------------------------


@pytest.fixture
def fake(monkeypatch):
    """Completions that are right or wrong as ``pattern(call)`` says, one bool per rollout."""
    def install(pattern):
        calls = []

        def sample(model, prompt_ids, num_generations, **_):
            n = len(prompt_ids) * num_generations
            calls.append(pattern(len(calls)))
            assert len(calls[-1]) == n
            return Samples(prompt_ids, [[5, 3]] * n, [torch.full((2,), -1.0)] * n,
                           torch.zeros(n).bool())  # fmt: skip

        monkeypatch.setattr(collect_module, "sample_groups", sample)
        monkeypatch.setattr(collect_module, "grade_all", lambda *_, **__: calls[-1])
        return calls

    return install


MIXED, FLAT, WON = [True, False, False, False], [False] * 4, [True] * 4


def test_a_generation_batch_in_parts_is_the_one_in_one_piece(monkeypatch, one_thread):
    config = smoke("MEDS")
    assert config.dynamic_sampling
    model, tokenizer = load_policy("tiny")
    found = []
    for tokens in (10**9, 1, 480):  # all rows at once, one, three
        monkeypatch.setenv("PAPERLIB_CACHE_TOKENS", str(tokens))
        stream = collect_module.make_stream(
            config, load_problems(config.dataset), model, tokenizer
        )
        found += [collect_module.collect(config, step, stream, model, tokenizer)
                  for step in (1, 2)]  # fmt: skip
    for (one, stats), (other, others) in zip(found[2:], 2 * found[:2], strict=True):
        assert one.completion_ids == other.completion_ids and stats == others
        assert one.rollouts.problem_ids == other.rollouts.problem_ids
        np.testing.assert_allclose(
            one.rollouts.layer_logits, other.rollouts.layer_logits, rtol=1e-3, atol=1e-3
        )


def test_dynamic_sampling_draws_until_the_batch_is_full(tmp_path, fake):
    calls = fake(lambda call: (FLAT if call else WON) + 3 * MIXED)  # more than are needed
    train(smoke("DAPO", max_steps=1), tmp_path / "run", progress=False)
    row = read_jsonl(tmp_path / "run" / "metrics.jsonl")[0]
    assert len(calls) == 2 == row["generation_batches"]
    assert (row["groups_drawn"], row["groups_dropped"], row["groups_kept"]) == (8, 2, 4)
    assert row["accuracy"] == 0.25 and row["accuracy_drawn"] == pytest.approx(10 / 32)


def test_dynamic_sampling_is_bounded_and_uses_what_it_has(tmp_path, fake):
    calls = fake(lambda call: (MIXED if call == 1 else FLAT) + 3 * FLAT)
    config = smoke("DAPO", max_steps=1, max_generation_batches=3)
    train(config, tmp_path / "run", progress=False)
    row = read_jsonl(tmp_path / "run" / "metrics.jsonl")[0]
    assert len(calls) == 3 and row["groups_kept"] == 1 and row["groups_drawn"] == 12
    assert row["updates"] >= 1


def test_a_run_without_mixed_groups_stops_with_its_reason(tmp_path, fake):
    calls = fake(lambda call: 4 * FLAT)
    config = smoke("DAPO", max_steps=50, max_generation_batches=2, max_empty_steps=3)
    train(config, tmp_path / "run", progress=False)
    complete = read_json(tmp_path / "run" / "complete.json")
    assert complete["step"] == 3 and "spread in accuracy for 3 steps" in complete["reason"]
    assert len(calls) == 6
    assert (tmp_path / "run" / "checkpoints" / "000003" / "COMPLETE").exists()


# --- bad input ------------------------------------------------------------------------------


@pytest.mark.parametrize(("changes", "says"), [
    ({"prompts_per_step": 16, "mini_batches": 1}, "8 prompts < 16 prompts per generation batch"),
    ({"max_prompt_length": 10}, "8 of them over max_prompt_length = 10"),
    ({"model": "no-such-model"}, "cannot load model 'no-such-model'"),
    ({"dataset": "gsm9k"}, "unknown data set 'gsm9k'; valid: tiny-test"),
    ({"prompt": "tag"}, "unknown prompt 'tag'; valid: tags, tags-oneshot, think, boxed"),
])
def test_bad_settings_are_named_before_any_work(tmp_path, changes, says):
    with pytest.raises(UserError) as error:
        train(smoke("GRPO", **changes), tmp_path / "run", progress=False)
    assert says in str(error.value)
    assert not (tmp_path / "run" / "metrics.jsonl").exists()


def test_bad_configs_are_refused_when_made():
    for changes, says in [
        ({"num_generations": 1}, "at least 2"), ({"mini_batches": 3}, "must divide"),
        ({"loss_type": "ppo"}, "valid: grpo, dapo, dr_grpo"), ({"max_steps": -1}, "max_steps"),
        ({"temperature": 0.0}, "temperature"), ({"terms": ()}, "no reward terms"),
        ({"seed": -1}, "seed is -1; it must be at least 0"), ({"seed": 10**400}, "seed is 1000"),
    ]:
        with pytest.raises(UserError, match=says):
            smoke("GRPO", **changes)
    seed_everything(1_000_003 * smoke("GRPO", seed=2**32 - 1).seed)  # the TRL engine's


@pytest.mark.parametrize(("states", "says"), [
    ({}, "the memory of no reward term; this run needs that of repeat"),
    ({"repeat": {"seen": torch.ones(512)}, "explore": {}}, "the memory of repeat, explore;"),
])
def test_a_checkpoint_without_a_terms_memory_is_refused(states, says):
    term = RepeatPenalty()
    with pytest.raises(UserError, match=says):
        restore_terms([term, Correctness()], states)
    assert not term.seen.any()
    restore_terms([term, Correctness()], {"repeat": {"seen": torch.ones(512)}})
    assert term.seen.all()


def test_another_configs_folder_is_refused_finished_or_not_by_both_engines(tmp_path):
    mine, other = (smoke("GRPO", max_steps=0, epsilon=epsilon) for epsilon in (0.2, 0.1))
    train(mine, tmp_path, progress=False)
    theirs = replace(mine, engine="trl", max_steps=1)
    for lost in ((), ("complete.json",)):
        for name in lost:
            (tmp_path / name).unlink()
        before = sorted(tmp_path.rglob("*"))
        with pytest.raises(UserError, match="another config: epsilon is 0.2 there, 0.1 here"):
            train(other, tmp_path, progress=False)
        with pytest.raises(UserError, match="engine is null there, .trl. here; max_steps"):
            trl_train(theirs, tmp_path, progress=False)
        assert sorted(tmp_path.rglob("*")) == before
    (tmp_path / "config.json").unlink()
    with pytest.raises(UserError, match="it has no config.json"):
        train(mine, tmp_path, progress=False)


@pytest.mark.parametrize(("saved_with", "restored_with"), [(1, 1), (8, 1), (1, 8), (2, 2), (8, 0)])
@pytest.mark.parametrize("earlier", [False, True])
def test_a_run_resumes_wherever_other_gpus_are_visible(
    monkeypatch, saved_with, restored_with, earlier
):
    """Generators of the CPU stand in for those of the GPUs."""
    def visible(count):
        gpus = [torch.Generator().manual_seed(i) for i in range(count)]
        monkeypatch.setattr(torch.cuda, "get_rng_state", lambda gpu: gpus[0].get_state())
        monkeypatch.setattr(torch.cuda, "set_rng_state", lambda s, gpu: gpus[0].set_state(s))
        return gpus

    gpus = visible(saved_with)
    torch.rand(3, generator=gpus[0])
    state = rng_state(torch.device("cuda"))
    if earlier:
        state["cuda"] = [gpu.get_state() for gpu in gpus]
    expected = torch.rand(3, generator=gpus[0])
    gpus = visible(restored_with)
    restore_rng(state, torch.device("cuda" if gpus else "cpu"))
    if gpus:
        assert torch.equal(torch.rand(3, generator=gpus[0]), expected)
    for i, other in enumerate(gpus[1:], start=1):
        assert torch.equal(other.get_state(), torch.Generator().manual_seed(i).get_state())


def test_a_state_is_not_read_back_into_gpu_memory(tmp_path, monkeypatch):
    places, load = [], torch.load
    monkeypatch.setattr(
        torch, "load", lambda *a, **k: places.append(k.get("map_location")) or load(*a, **k)
    )
    save_state(tmp_path, {"step": 1, "moments": torch.ones(3)})
    assert places == ["cpu"]


def test_base_is_a_run_of_no_steps(tmp_path):
    train(recipe("meds", "Base", "smoke", 0), tmp_path, progress=False)
    assert json.loads((tmp_path / "complete.json").read_text())["step"] == 0
    assert (tmp_path / "checkpoints" / "000000" / "COMPLETE").exists()
