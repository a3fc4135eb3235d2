"""Reward terms as reward functions of a stock GRPOTrainer: by hand, and in a real one."""

import copy
import hashlib
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from paperlib.errors import UserError
from paperlib.methods.baselines import Correctness
from paperlib.methods.meds import ClusterPenalty, Meds
from paperlib.methods.memory_r import Exploit, Explore, MemoryR
from paperlib.rl import trl_rollouts
from paperlib.rl.collect import make_rollouts
from paperlib.rl.policy import load_policy
from paperlib.rl.sampling import sample_groups
from paperlib.rl.trl_rewards import as_reward_function
from paperlib.tasks.data import Problem, load_problems
from paperlib.tasks.prompts import SYSTEM_PROMPTS, build_prompt

END = 1


class Characters:
    """A tokenizer with one token per character; END and padding are special."""

    eos_token_id, pad_token_id = END, 0

    def decode(self, ids, skip_special_tokens=True):
        return "".join(chr(i) for i in ids if i > END)

    def batch_decode(self, rows, skip_special_tokens=True):
        return [self.decode(ids) for ids in rows]


class Hashes:
    """An encoder without a model: eight numbers of a text's digest, of unit length."""

    def encode(self, texts):
        rows = [list(hashlib.sha256(text.encode()).digest()[:8]) for text in texts]
        return torch.nn.functional.normalize(torch.tensor(rows, dtype=torch.float32), dim=1)


class Trainer:
    """What a reward function sees of a GRPOTrainer."""

    def __init__(self, **changes):
        torch.manual_seed(0)
        self.model = LlamaForCausalLM(LlamaConfig(
            vocab_size=128, hidden_size=32, intermediate_size=48, num_hidden_layers=4,
            num_attention_heads=4, max_position_embeddings=128, initializer_range=0.3,
            pad_token_id=0, eos_token_id=END,
        )).train()
        self.processing_class = Characters()
        self.state = SimpleNamespace(global_step=0)
        self.args = SimpleNamespace(**{
            "num_generations": 2, "num_generations_eval": None, "max_completion_length": 12,
            "per_device_train_batch_size": 2, "world_size": 1, **changes,
        })

        # one process, in full precision
        self.accelerator = SimpleNamespace(autocast=nullcontext)
        self._dist = SimpleNamespace(gather_params=nullcontext)

    def log_metric(self, name, value):
        pass

    def _tokenize_prompts(self, prompts):
        return [[ord(c) for c in prompt] for prompt in prompts], None, {}

    def call(self, function, texts, answer="7", ended=True, **columns):
        """``texts`` are completions; every two are a group."""
        n = len(texts)
        ids = [[ord(c) for c in text] + [END] * ended for text in texts]
        columns = {
            "id": [f"p{i // 2}" for i in range(n)],
            "answer": answer if isinstance(answer, list) else [answer] * n,
            "question": [f"question {i // 2}" for i in range(n)], **columns,
        }
        prompts = [f"ask {i // 2}:" for i in range(n)]
        return function(
            prompts=prompts, completions=texts, completion_ids=ids, trainer_state=self.state,
            log_extra=None, log_metric=self.log_metric, **columns,
        )


TEXTS = ["\\boxed{7}", "\\boxed{8}", "none", "2\\boxed{9}"]


def memory_term(kind, **changes):
    term = kind(MemoryR.paper(**changes))
    term.encoder = Hashes()
    return term


class Spy:
    """Keeps the rollouts it is shown."""

    name = "spy"

    def __call__(self, rollouts):
        self.seen = rollouts
        return [0.0] * len(rollouts)


def test_the_rollouts_are_those_of_our_loop():
    trainer, spy = Trainer(), Spy()
    function = as_reward_function(spy)
    assert function.__name__ == "spy"
    assert trainer.call(function, TEXTS) == [0.0] * 4
    problems = [Problem(f"p{i // 2}", f"question {i // 2}", "7") for i in range(4)]
    expected = make_rollouts(1, 2, 12, problems, TEXTS, [len(t) + 1 for t in TEXTS], [False] * 4,
                             [1.0, 0.0, 0.0, 0.0])  # fmt: skip
    for name, value in vars(spy.seen).items():
        np.testing.assert_array_equal(value, getattr(expected, name), err_msg=name)
    messages = [[{"role": "assistant", "content": text}] for text in TEXTS]
    ids = [[ord(c) for c in text] for text in TEXTS]
    function(  # conversational, and cut off
        prompts=[[{"role": "user", "content": "q"}]] * 4, completions=messages, completion_ids=ids,
        log_metric=trainer.log_metric, id=[1, 1, 2, 2], question=["q"] * 4, answer=[7] * 4,
    )
    assert spy.seen.step == 2 and spy.seen.problem_ids == ["1", "1", "2", "2"]
    assert spy.seen.completions == TEXTS and spy.seen.golds == ["7"] * 4
    assert spy.seen.truncated.all() and spy.seen.accuracy.tolist() == [1, 0, 0, 0]


@pytest.mark.parametrize("reading", ["normed", "raw"])
def test_layer_logits_equal_those_the_sampler_records(reading, monkeypatch):
    trainer, prompts = Trainer(), ["ABCDE", "F", "GH"]
    model, prompt_ids = trainer.model, trainer._tokenize_prompts(prompts)[0]
    samples = sample_groups(
        model, prompt_ids, 3, max_completion_length=8, temperature=1.0, top_p=1.0, pad_token_id=0,
        seed=1, eos_token_ids=[END, 2, 3, 4, 5],
        layer_logits=reading,
    )
    ids, recorded = samples.completion_ids, samples.layer_logits
    places = [row % len(completion) for row, completion in enumerate(ids)]
    assert {0, 1, 2} < set(places)
    answers = iter([None, *places[1:]])
    monkeypatch.setattr(trl_rollouts, "answer_token", lambda *_: next(answers))
    found = trl_rollouts.wrong_answers(
        trainer, SimpleNamespace(logit=reading, position="answer"),
        [p for p in prompts for _ in range(3)], ids, [""] * 9, [0.0] * 8 + [1.0],
    )
    expected = torch.stack([recorded[row, at] for row, at in enumerate(places)])
    assert found.shape == (9, 4) and np.isnan(found[[0, 8]]).all()  # no answer, a right one
    assert np.allclose(found[1:8], expected[1:8], atol=1e-4)
    assert model.training and not model.model.layers[0]._forward_hooks


def test_meds_sees_the_wrong_answers_of_the_weights_being_trained():
    trainer, term = Trainer(), ClusterPenalty(Meds.paper())
    function = as_reward_function(term)
    trainer.call(function, TEXTS)
    assert {key: len(rows) for key, rows in term.memory.items()} == {"p0": 1, "p1": 1}
    ids = [ord(c) for c in TEXTS[1]]
    row = trl_rollouts.wrong_answers(
        trainer, term.settings, ["ask 0:"], [ids], TEXTS[1:2], [0.0]
    )[0, -2:]
    assert np.allclose(term.memory["p0"][0], row / np.linalg.norm(row), atol=1e-5)
    with torch.no_grad():
        trainer.model.model.layers[2].mlp.down_proj.weight.mul_(-1)  # an update
    rewards = trainer.call(function, TEXTS)
    assert not np.allclose(*term.memory["p0"], atol=1e-2)
    assert rewards[0] == rewards[2] == 0.0  # right, and without an answer


@pytest.mark.parametrize(("changes", "columns", "message"), [
    ({}, {"id": [*"aaab"], "question": [*"qqqr"]}, "of problems a, b are not whole groups of 2"),
    ({"num_generations": 3}, {}, "4 completions .* not whole groups of 3"),
    ({"world_size": 2}, {}, "2 processes: each would remember its own"),
])
def test_what_is_refused(changes, columns, message):
    with pytest.raises(UserError, match=message):
        Trainer(**changes).call(as_reward_function(Correctness()), TEXTS, **columns)


class Rows(dict):
    """A data set: all of it, by column, is ``rows[:]``."""

    def __getitem__(self, key):
        return dict(self) if key == slice(None) else super().__getitem__(key)


@pytest.mark.parametrize(("answer", "message"), [
    (None, "1 rows with no gold answer: p1$"), (" ", "1 rows with no gold answer: p1$"),
    ("", "1 rows with no gold answer: p1$"), (float("nan"), "row p1: the gold answer is nan"),
    (True, "row p1: the gold answer is True"), (["7", "8"], "row p1: the gold answer is"),
])
@pytest.mark.parametrize("where", ["batch", "data set"])
def test_golds_that_are_none_are_refused_by_problem(answer, message, where):
    trainer, spy, golds = Trainer(), Spy(), ["7", "7", answer, answer]
    if where == "data set":  # before anything is trained, although the first batch is sound
        table = {"id": ["p0", "p0", "p1", "p1"], "question": [*"qqrr"], "answer": golds}
        trainer.train_dataset, golds = Rows(table), "7"
    with pytest.raises(UserError, match=f"^data set 'of the trainer'[:,] {message}"):
        trainer.call(as_reward_function(spy), TEXTS, answer=golds)
    assert not hasattr(spy, "seen")


def test_a_completion_without_tokens_is_cut_and_wrong():
    trainer, spy = Trainer(), Spy()
    trainer.call(as_reward_function(spy), ["", "\\boxed{7}"], ended=False)
    assert spy.seen.lengths.tolist() == [0, 9] and spy.seen.truncated.tolist() == [True, True]
    assert spy.seen.accuracy.tolist() == [0, 1]
    term = ClusterPenalty(Meds.paper())
    trainer.call(as_reward_function(term), ["", "\\boxed{8}"], ended=False)
    assert len(term.memory["p0"]) == 1


def test_missing_columns_other_callers_and_resumed_runs_are_refused():
    function, trainer = as_reward_function(Correctness()), Trainer()
    with pytest.raises(UserError, match="no column id, question; reward terms need"):
        function([""], [""], [[1]], log_metric=trainer.log_metric, answer=["7"])
    with pytest.raises(UserError, match="'correctness' was called without log_metric"):
        function([""], [""], [[1]], id=["a"], question=["q"], answer=["7"])
    trainer.state.global_step = 40
    with pytest.raises(UserError, match="resumed at update 40, but reward term 'explore' has"):
        trainer.call(as_reward_function(memory_term(Explore)), TEXTS)
    assert trainer.call(function, TEXTS) == [1.0, 0.0, 0.0, 0.0]  # nothing to remember


@pytest.mark.filterwarnings("ignore")
def test_a_stock_trainer_runs_both_methods(tmp_path):
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    model, tokenizer = load_policy("tiny")
    problems = load_problems("tiny-smoke")[:2]  # both in every generation batch
    rows = Dataset.from_list([
        {"id": p.id, "question": p.question, "answer": p.answer, "prompt": [
            {"role": "system", "content": SYSTEM_PROMPTS["boxed"]},
            {"role": "user", "content": p.question},
        ]}
        for p in problems
    ])
    terms = [
        Correctness(), memory_term(Exploit), memory_term(Explore, explore_warmup=1),
        ClusterPenalty(Meds.paper()), Spy(),
    ]
    args = GRPOConfig(
        output_dir=str(tmp_path), max_steps=2, learning_rate=1e-3, per_device_train_batch_size=16,
        per_device_eval_batch_size=16, gradient_accumulation_steps=1, num_generations=8,
        num_generations_eval=4,
        max_completion_length=80, use_cpu=True, bf16=False, report_to="none", save_strategy="no",
        logging_steps=1, disable_tqdm=True, seed=0,
    )
    before = copy.deepcopy(model.state_dict())
    trainer = GRPOTrainer(
        model=model, reward_funcs=[as_reward_function(term) for term in terms], args=args,
        train_dataset=rows, eval_dataset=rows, processing_class=tokenizer,
    )
    trainer.train()
    assert any(not torch.equal(before[name], value) for name, value in model.state_dict().items())

    correctness, exploit, explore, meds, spy = terms
    log = trainer.state.log_history
    assert all(f"rewards/{term.name}/mean" in log[0] for term in terms)
    assert spy.seen.step == 2 and sorted(set(spy.seen.problem_ids)) == [p.id for p in problems]
    assert meds.visits == {p.id: 2 for p in problems}
    assert 0 < sum(map(len, meds.memory.values())) < 32
    assert len(exploit.memory) and len(explore.memory) and len(exploit.window_values)
    assert log[1]["rewards/explore/std"] > 0
    visits, seen, state = dict(meds.visits), spy.seen, copy.deepcopy(explore.state_dict())
    scores = trainer.evaluate()
    assert meds.visits == visits and spy.seen is seen  # copies answered
    assert len(explore.memory) == len(state["memory"]["keys"])
    assert torch.equal(explore.state_dict()["window_values"], state["window_values"])
    assert np.isfinite(scores["eval_rewards/explore/mean"])
    ids = trainer._tokenize_prompts([rows[0]["prompt"]])[0]
    assert ids == [build_prompt(tokenizer, problems[0].question, "boxed")]
