"""The sentence encoder: the shipped one, without its own module for unit length."""

import copy

import pytest
import torch

from paperlib.errors import UserError
from paperlib.methods import embeddings
from paperlib.methods.embeddings import TextEncoder, text_encoder

LIMIT = 6  # digits, which with the spaces between them are 11 tokens


def tiny():
    before = torch.get_rng_state()
    encoder = TextEncoder("tiny")
    del encoder.model[-1]  # unit length must come from us
    encoder.model.max_seq_length = 2 * LIMIT - 1
    assert torch.equal(torch.get_rng_state(), before)  # loading draws no random numbers
    return encoder


@pytest.fixture
def encoder():
    return tiny()


def text(length, shift=0):
    return " ".join(str((i * 3 + shift) % 8) for i in range(length))


def test_rows_are_unit_float32_and_follow_the_input(encoder):
    texts = [text(n) for n in (5, 2, 6, 2, 1)]
    rows = encoder.encode(texts)
    assert rows.shape == (5, 64) and rows.dtype == torch.float32 and rows.device.type == "cpu"
    assert not rows.requires_grad and not rows.is_inference()
    assert torch.allclose(rows.norm(dim=1), torch.ones(5), atol=1e-6)
    assert torch.equal(rows[1], rows[3]) and not torch.equal(rows[1], rows[4])


def test_a_vector_does_not_depend_on_what_else_is_encoded():
    texts = [text(n, shift) for n in (1, 3, 3, 4, 6) for shift in range(3)]
    together, alone = tiny().encode(texts), tiny()
    assert torch.equal(together, torch.cat([alone.encode([each]) for each in texts]))


def test_single_string_empty_list_and_wrong_types(encoder):
    assert encoder.encode("one two").shape == (1, 64)
    assert encoder.encode([]).shape == (0, 64)
    with pytest.raises(UserError, match="text 1 is None"):
        encoder.encode(["one", None])


def test_each_distinct_text_is_encoded_once_and_the_cache_is_bounded(encoder, monkeypatch):
    seen, real = [], encoder.model.encode
    monkeypatch.setattr(
        encoder.model, "encode", lambda texts, **kw: seen.extend(texts) or real(texts, **kw)
    )
    monkeypatch.setattr(embeddings, "CACHED_TEXTS", 2)
    encoder.encode(["one", "two", "one"])
    encoder.encode(["one"])
    assert encoder.encode(["three", "four", "one"]).shape == (3, 64)  # more than it may keep
    assert sorted(seen) == ["four", "one", "three", "two"]
    assert list(encoder._cache) == ["four", "one"]  # not asked for the longest: gone


def test_long_texts_are_counted_once_and_cut_and_told(encoder, capsys):
    long = text(LIMIT + 1)
    rows = encoder.encode([text(LIMIT), long, long])
    encoder.encode([long])
    assert encoder.truncated_texts == 1 and torch.equal(rows[0], rows[1])
    encoder.encode([text(LIMIT + 2)])
    told = [line for line in capsys.readouterr().err.splitlines() if "sentence encoder" in line]
    assert len(told) == 1 and "reads 11 tokens of a text: 1 of 2 are longer" in told[0]
    assert encoder.truncated_texts == 2


def test_one_shared_instance_per_name_that_loads_late_and_survives_deepcopy():
    assert text_encoder("no such folder") is text_encoder("no such folder")  # nothing loaded yet
    shared = text_encoder("tiny")
    assert copy.deepcopy({"term": shared})["term"] is shared
    with pytest.raises(UserError, match="cannot load the sentence encoder 'no such folder'"):
        text_encoder("no such folder").encode(["one"])
