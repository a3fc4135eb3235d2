"""The sentence encoder on a random model of two layers, made on the spot."""

import copy

import pytest
import torch

from paperlib.errors import UserError
from paperlib.methods import embeddings
from paperlib.methods.embeddings import TextEncoder, text_encoder

MAX_TOKENS = 12
WORDS = ["one", "two", "three", "four", "five", "plus", "minus", "is"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    path = tmp_path_factory.mktemp("encoder")
    torch.manual_seed(0)
    vocabulary = {word: i for i, word in enumerate(["[PAD]", "[UNK]", *WORDS])}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="[PAD]", unk_token="[UNK]"
    ).save_pretrained(path / "bert")
    BertModel(BertConfig(
        vocab_size=len(vocabulary), hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=32, max_position_embeddings=64,
    )).save_pretrained(path / "bert")
    body = Transformer(str(path / "bert"), max_seq_length=MAX_TOKENS)
    # no Normalize module: unit length must come from us
    modules = [body, Pooling(body.get_embedding_dimension(), "mean")]
    SentenceTransformer(modules=modules, device="cpu").save(str(path), create_model_card=False)
    return path


@pytest.fixture
def encoder(folder):
    return TextEncoder(str(folder))


def text(length, shift=0):
    return " ".join(WORDS[(i * 3 + shift) % len(WORDS)] for i in range(length))


def test_rows_are_unit_float32_and_follow_the_input(encoder):
    texts = [text(n) for n in (7, 2, 9, 2, 1)]
    rows = encoder.encode(texts)
    assert rows.shape == (5, 16) and rows.dtype == torch.float32 and rows.device.type == "cpu"
    assert not rows.requires_grad and not rows.is_inference()
    assert torch.allclose(rows.norm(dim=1), torch.ones(5), atol=1e-6)
    assert torch.equal(rows[1], rows[3]) and not torch.equal(rows[1], rows[4])
    for row, each in zip(rows, texts, strict=True):
        assert torch.equal(encoder.encode(each)[0], row)


def test_a_vector_does_not_depend_on_what_else_is_encoded(folder):
    texts = [text(n, shift) for n in (3, 5, 5, 8, 11) for shift in range(3)]
    together = TextEncoder(str(folder)).encode(texts)
    alone = TextEncoder(str(folder))
    assert torch.equal(together, torch.cat([alone.encode([each]) for each in texts]))


def test_loading_and_encoding_draw_no_random_numbers(encoder):
    torch.manual_seed(3)
    before = torch.get_rng_state()
    encoder.encode("one")
    assert torch.equal(torch.get_rng_state(), before)


def test_single_string_empty_list_and_wrong_types(encoder):
    assert encoder.encode("one two").shape == (1, 16)
    assert encoder.encode([]).shape == (0, 16)
    with pytest.raises(UserError, match="text 1 is None"):
        encoder.encode(["one", None])


def test_each_distinct_text_is_encoded_once(encoder, monkeypatch):
    seen = []
    real = encoder.model.encode
    monkeypatch.setattr(
        encoder.model, "encode", lambda texts, **kw: seen.extend(texts) or real(texts, **kw)
    )
    encoder.encode(["one", "two", "one"])
    encoder.encode(["two", "three plus"])
    assert sorted(seen) == ["one", "three plus", "two"]


def test_the_cache_is_bounded_and_drops_what_was_unused_for_longest(encoder, monkeypatch):
    monkeypatch.setattr(embeddings, "CACHED_TEXTS", 2)
    encoder.encode(["one", "two"])
    encoder.encode(["one"])
    assert encoder.encode(["three", "four", "one"]).shape == (3, 16)  # more than it may keep
    assert list(encoder._cache) == ["four", "one"]


def test_long_texts_are_counted_once_and_cut_and_told(encoder, capsys):
    long = text(MAX_TOKENS + 1)
    rows = encoder.encode([text(MAX_TOKENS), long, long])
    encoder.encode([long])
    assert encoder.truncated_texts == 1 and torch.equal(rows[0], rows[1])
    encoder.encode([text(MAX_TOKENS + 2)])
    told = [line for line in capsys.readouterr().err.splitlines() if "sentence encoder" in line]
    assert len(told) == 1 and "reads 12 tokens of a text: 1 of 2 are longer" in told[0]
    assert encoder.truncated_texts == 2


def test_one_shared_instance_per_name_that_loads_late_and_survives_deepcopy(folder):
    assert text_encoder("no such folder") is text_encoder("no such folder")  # nothing loaded yet
    shared = text_encoder(str(folder))
    assert copy.deepcopy({"term": shared})["term"] is shared
    with pytest.raises(UserError, match="cannot load the sentence encoder 'no such folder'"):
        text_encoder("no such folder").encode(["one"])
