"""Layer logits recorded while sampling against a plain forward pass; the answer's token."""

import numpy as np
import pytest
import torch
from test_logps import PROMPTS, make_model

from paperlib.errors import UserError
from paperlib.rl.collect import answer_logits
from paperlib.rl.layer_logits import LayerTrace, answer_token
from paperlib.rl.policy import load_policy
from paperlib.rl.sampling import Samples, sample_groups
from paperlib.tasks.tiny import MODEL_DIR


def sample(model, reading, **changes):
    settings = {
        "max_completion_length": 8, "temperature": 1.0, "top_p": 1.0, "eos_token_ids": [1, 2, 3],
        "seed": 0, "pad_token_id": 0,
    }  # fmt: skip
    return sample_groups(model, PROMPTS, 3, layer_logits=reading, **{**settings, **changes})


def test_recording_makes_no_forward_pass_and_changes_nothing():
    model = make_model()
    calls = []
    model.model.register_forward_hook(lambda *_: calls.append(1))
    plain = sample(model, None)
    without, calls[:] = len(calls), []
    traced = sample(model, "normed")
    assert len(calls) == without
    assert plain.layer_logits is None and traced.completion_ids == plain.completion_ids
    assert not model.model.layers[0]._forward_hooks  # hooks are gone afterwards


def test_models_of_another_build_are_refused():
    with pytest.raises(UserError, match="Linear has no decoder layers"):
        other = torch.nn.Linear(2, 2)
        other.base_model = other
        LayerTrace(other, "raw")


class Pieces:
    """A tokenizer whose tokens are given pieces of text; 0 is a special token."""

    def __init__(self, *pieces):
        self.pieces = ["", *pieces]

    def decode(self, ids, skip_special_tokens):
        return "".join(self.pieces[i] for i in ids)


@pytest.mark.parametrize(
    ("pieces", "position", "expected"),
    [
        (["so ", "\\boxed", "{", "42", "}"], "answer", 3),
        (["so \\", "boxed{", "4", "2}"], "answer", 2),
        (["so ", "\\boxed{4", "2}."], "answer", 1),  # merged with its box
        (["\\boxed{", " ", "42", "}"], "answer", 2),  # not the space
        (["\\boxed{", " 42", "}"], "answer", 1),  # the token that holds the first non-space
        (["\\boxed{", " ", "42", "}"], "box", 1),  # whatever comes after the brace
        (["\\boxed{", "1", "} or \\boxed{", "2", "}"], "answer", 3),
        (["\\boxed{", "1", "} or \\boxed{", "2"], "answer", None),  # not closed: no answer
        (["\\boxed{", "1", "} or \\boxed{", "2"], "box", 3),  # the released code does not care
        (["\\boxed{"], "box", None),  # nothing after it
        (["<answer>", "\n", "7", "\n</answer>"], "answer", 2),
        (["<answer>", "\n", "7", "\n</answer>"], "box", None),
        (["no answer"], "answer", None),
    ],
)
def test_answer_token_by_hand(pieces, position, expected):
    tokenizer = Pieces(*pieces)
    ids = list(range(1, len(pieces) + 1))
    text = "".join(pieces)
    assert answer_token(tokenizer, ids, text, position) == expected
    if expected is not None:  # special tokens do not shift it
        assert answer_token(tokenizer, [0, *ids, 0], text, position) == expected + 1


def test_answer_logits_leaves_nan_where_there_is_no_answer():
    samples = Samples([[1]], [[1, 2, 3], [4]], [], torch.zeros(2).bool(),
                      torch.arange(2 * 3 * 2.0).reshape(2, 3, 2))
    tokenizer = Pieces("\\boxed{", "7", "}", "none")
    found = answer_logits(tokenizer, samples, ["\\boxed{7}", "none"], "answer")
    assert found[0].tolist() == [2.0, 3.0] and np.isnan(found[1]).all()
    assert found.dtype == np.float32


@pytest.mark.skipif(not MODEL_DIR.exists(), reason="the tiny model is not built")
@pytest.mark.parametrize("text", [
    "<reasoning>\nStep 1: 3+4=7\n</reasoning>\n<answer>\n7\n</answer>\n", "- 3+4=7\n\\boxed{7}",
])
def test_answer_token_with_the_tiny_tokenizer(text):
    _, tokenizer = load_policy("tiny")
    ids = tokenizer.encode(text, add_special_tokens=False)
    token = answer_token(tokenizer, [*ids, tokenizer.eos_token_id], text, "answer")
    assert tokenizer.decode(ids[token]) == "7"
    assert len(tokenizer.decode(ids[:token])) > text.index("=")  # the answer's, not the step's
