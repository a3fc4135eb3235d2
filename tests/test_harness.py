import io
import json
import random
import re
import socket
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import fields, replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from byte_tokenizer import EOS, byte_tokenizer
from transformers import LlamaConfig

from paperlib.errors import UserError
from paperlib.evaluation.harness import evaluate
from paperlib.evaluation.settings import TASKS, EvalSettings
from paperlib.tasks.data import Problem, load_problems

SETTINGS = EvalSettings(
    task="tiny_smoke", samples=4, temperature=1.0, top_p=1.0, max_completion_length=300, seed=0,
    prompt="tags",
)  # fmt: skip


def test_settings_hash_is_stable_and_sees_every_field():
    assert SETTINGS.hash == replace(SETTINGS, grading="math").hash == "899622be95"
    assert SETTINGS.hash == replace(SETTINGS, temperature=1, top_p=1).hash
    changed = {"task": "tiny_test", "samples": 5, "temperature": 0.5, "top_p": 0.5, "seed": 1,
               "max_completion_length": 301, "prompt": "boxed",
               "grading": "strict"}
    assert changed.keys() == {field.name for field in fields(EvalSettings)}
    others = {replace(SETTINGS, **{name: value}).hash for name, value in changed.items()}
    assert len(others | {SETTINGS.hash}) == len(changed) + 1
    for settings in (SETTINGS, replace(SETTINGS, grading="extractive")):
        assert EvalSettings(**json.loads(json.dumps(settings.to_dict()))) == settings
    assert SETTINGS.name == f"tiny_smoke-n4-t1.0-{SETTINGS.hash}"
    assert re.fullmatch(r"[\w.-]+", replace(SETTINGS, temperature=1 / 3).name)


@pytest.mark.parametrize(("change", "named"), [
    ({"samples": 0}, "samples is 0"), ({"temperature": 0.0}, "samples must be 1"),
    ({"temperature": -0.1}, "temperature -0.1"), ({"temperature": float("nan")}, "temperature nan"),
    ({"top_p": 0.0}, "top_p 0.0"), ({"top_p": 1.1}, "top_p 1.1"), ({"seed": -1}, "seed -1 in"),
    ({"max_completion_length": 0}, "max_completion_length is 0"),
    ({"prompt": "plain"}, "valid: tags, tags-oneshot, think, boxed"),
    ({"grading": "exact"}, "valid: math, extractive, strict"),
])  # fmt: skip
def test_settings_refuse(change, named):
    with pytest.raises(UserError, match=re.escape(named)):
        replace(SETTINGS, **change)


LINES = "{% for m in messages %}{{ m['content'] }}{{ '' if loop.last else '\n' }}{% endfor %}"


def answering(patch, texts_of):
    """In the sampler's place: texts of a question and whether each is cut; the calls it gets."""
    tokenizer, calls = byte_tokenizer(LINES, adds_bos=False), []
    model = SimpleNamespace(
        device=torch.device("cpu"), generation_config=SimpleNamespace(eos_token_id=[EOS, 7]),
        config=LlamaConfig(),
    )

    def sample(model, prompt_ids, num_generations, **settings):
        calls.append({"prompts": len(prompt_ids), "n": num_generations, **settings})
        questions = [tokenizer.decode(ids).split("\n")[-1] for ids in prompt_ids]
        texts = [text for question in questions for text in texts_of(question)]
        ids = [tokenizer.encode(t, add_special_tokens=False) + [EOS] * (not c) for t, c in texts]
        return SimpleNamespace(completion_ids=ids, truncated=torch.tensor([c for _, c in texts]))

    patch.setattr("paperlib.rl.policy.load_policy", lambda name, device: (model, tokenizer))
    patch.setattr("paperlib.evaluation.harness.sample_groups", sample)
    return calls


def responses_to(gold):
    """One wrong, two right, one wrong; stop strings inside, and the last one cut by the limit."""
    return [
        f"<reasoning>\nEasy.\n</reasoning>\n<answer>\n{gold}0\n</answer>",
        f"<reasoning>\nThe Question:\n\nProblem:\n\n</reasoning>\n<answer>\n{gold}\n</answer>",
        f"<answer>{gold}</answer>",
        "<reasoning>\nWait, " * 3,
    ]


def global_draws():
    """What the global generators would draw next; draws nothing."""
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    draws = random.random(), np.random.rand(), torch.rand(1).item()
    random.setstate(states[0]), np.random.set_state(states[1]), torch.set_rng_state(states[2])
    return draws


@pytest.fixture(scope="module")
def run():
    """One evaluation by the real lm-eval of a sampler with known responses, offline and watched."""
    golds = {p.question: p.answer for p in load_problems("tiny-smoke")}

    def texts_of(question):
        return [(text, text.endswith("Wait, ")) for text in responses_to(golds[question])]

    def no_network(*_):
        raise AssertionError("the network was used")

    out, before = io.StringIO(), global_draws()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(out):
        calls = answering(patch, texts_of)
        patch.setattr(socket.socket, "connect", no_network)
        patch.setattr(socket, "getaddrinfo", no_network)
        result = evaluate("tiny", SETTINGS, progress=False)
    return SimpleNamespace(result=result, calls=calls, printed=out.getvalue(),
                           generators_untouched=before == global_draws())  # fmt: skip


def test_every_response_is_kept_graded_and_scored_under_its_own_name(run):
    assert run.result["metrics"] == {
        "tiny_smoke": {"first": 0.0, "avg@4": 0.5, "pass@1": 0.5, "pass@2": pytest.approx(5 / 6),
                       "pass@4": 1.0, "no_answer": 0.25}
    }
    expected = []
    for problem in load_problems("tiny-smoke"):
        texts = responses_to(problem.answer)
        tokens = sum(map(len, texts)) + 3  # three of the four end with an end token
        expected.append({
            "id": problem.id, "level": problem.level, "n": 4, "correct": 2,
            "no_answer": 1, "truncated": 1,  # the one cut by the limit
            "mean_length": tokens / 4, "responses": texts, "grades": [0, 1, 1, 0],
        })  # fmt: skip
    assert run.result["problems"] == expected


def test_prompts_are_sampled_once_with_every_setting_explicit(run):
    settings = {"n": 4, "temperature": 1.0, "top_p": 1.0, "max_completion_length": 300,
                "eos_token_ids": {EOS, 7}, "pad_token_id": EOS, "seed": 0}  # fmt: skip
    assert run.calls == [{"prompts": 8, **settings}]
    assert run.result["generation_kwargs"] == {
        "until": [], "do_sample": True, "temperature": 1.0, "top_p": 1.0, "max_gen_toks": 300,
    }
    assert run.result["settings"] == SETTINGS.to_dict()
    assert run.result["versions"].keys() == {"lm_eval", "transformers", "torch"}
    assert json.loads(json.dumps(run.result)) == run.result
    assert run.printed == "" and run.generators_untouched


def test_joined_tasks_are_told_apart_by_level_and_graded_by_the_rule_asked_for(monkeypatch):
    def load(name):
        return [Problem(f"{name}-{i}", f"{name} {i}?", "5", i) for i in range(2)]

    def texts_of(question):
        # a bare answer: right by the strict rule, no answer by the default one
        return [(text, "test 1" in question) for text in ("5", "6" if "test" in question else "5")]

    answering(monkeypatch, texts_of)
    monkeypatch.setattr("paperlib.evaluation.lm_tasks.load_problems", load)
    settings = replace(SETTINGS, task="tiny_test+tiny_smoke", samples=2, grading="strict")
    result = evaluate("tiny", settings, progress=False)
    assert [(p["id"], p["level"], p["correct"], p["truncated"]) for p in result["problems"]] == [
        ("tiny-test-0", "tiny_test", 1, 0), ("tiny-test-1", "tiny_test", 1, 2),
        ("tiny-smoke-0", "tiny_smoke", 2, 0), ("tiny-smoke-1", "tiny_smoke", 2, 0),
    ]
    assert {name: m["avg@2"] for name, m in result["metrics"].items()} == {
        "tiny_test": 0.5, "tiny_smoke": 1.0,
    }
    default = evaluate("tiny", replace(settings, grading="math"), progress=False)
    assert {(p["correct"], p["no_answer"]) for p in default["problems"]} == {(0, 2)}


def test_same_seed_same_responses_through_the_real_sampler():
    def responses(settings):
        return [p["responses"] for p in evaluate("tiny", settings, progress=False)["problems"]]

    settings = replace(SETTINGS, samples=2, max_completion_length=6)
    before = global_draws()
    first = responses(settings)
    assert before == global_draws()
    assert first == responses(settings)
    assert first != responses(replace(settings, seed=1))
    greedy = replace(settings, samples=1, temperature=0)
    assert responses(greedy) == responses(replace(greedy, seed=1))


@pytest.mark.parametrize(("checkpoint", "task", "named"), [
    ("tiny", "tiny_test_t1", "valid: .*tiny_smoke, tiny_test, tiny_validation"),
    ("tiny", "tiny_smoke+gsm8k", "unknown evaluation task 'gsm8k'"),
    ("./nowhere", "tiny_smoke", "cannot load model './nowhere'"),
    (TASKS, "tiny_smoke", "cannot load model '.*/tasks'.* config.json"),
])  # fmt: skip
def test_mistakes_are_named(checkpoint, task, named):
    with pytest.raises(UserError, match=named):
        evaluate(checkpoint, replace(SETTINGS, task=task))
