"""System prompts of both papers and how a question becomes prompt tokens.

Every model gets its own chat template, as it is. Qwen3 therefore thinks (``enable_thinking`` stays
at the template's default, on): MEDS mentions no switch and counts Qwen3-8B among the models "with
explicit reasoning processes" (Sec. 4.1); its printed template ends with the assistant's bare turn.
"""

import hashlib
import re
import tomllib
from contextlib import suppress
from functools import lru_cache
from itertools import zip_longest
from pathlib import Path
from typing import Any

from paperlib.errors import UserError, check_choice
from paperlib.files import read_json

SYSTEM_PROMPTS: dict[str, str] = tomllib.loads(
    Path(__file__).with_suffix(".toml").read_text("utf-8")
)
# What a chat template may read beside the messages. Llama 3's writes today's date into every
# prompt unless it is told one; this is the date it falls back to. Other templates ignore it.
TEMPLATE_VARIABLES: dict[str, Any] = {"date_string": "26 Jul 2024"}

# Memory-R+ shows Llama-3.2-1B one in-context example per training sample, drawn at random from nine
# GSM8K-style ones (released code; the problems and solutions here are ours).
EXAMPLES: list[dict[str, Any]] = read_json(Path(__file__).with_name("worked_examples.json"))

_PLACE = "\ue000place\ue001"  # of a special token's text in a question, while it is rendered


def build_prompt(tokenizer: Any, question: str, prompt: str) -> list[int]:
    """Token ids of system prompt and question, ready for the assistant's first token.

    A template that refuses or drops the system role (Gemma) gets its text at the head of the first
    user turn. A tokenizer that begins plain text with BOS gets exactly one, whoever writes it.
    What a question says is text: a special token's name in it (``<|im_end|>``) ends no turn.
    """
    check_choice("prompt", prompt, SYSTEM_PROMPTS)
    if not tokenizer.chat_template:
        raise UserError(
            f"the tokenizer of {tokenizer.name_or_path!r} has no chat template, so it is not known "
            "how to ask this model; valid: a chat or instruct model"
        )
    names = special_tokens_in(tokenizer, question)
    content = _special_tokens(tokenizer).sub(_PLACE, question) if names else question
    turns = [{"role": "user", "content": content}]
    if prompt == "tags-oneshot":
        said = zip(("user", "assistant"), worked_example(question), strict=True)
        turns = [{"role": role, "content": text} for role, text in said] + turns
    text = _render(tokenizer, SYSTEM_PROMPTS[prompt], turns)
    ids: list[int] = []
    for piece, name in zip_longest(text.split(_PLACE), names, fillvalue=""):
        ids += tokenizer(piece, add_special_tokens=False)["input_ids"]
        ids += tokenizer(name, add_special_tokens=False, split_special_tokens=True)["input_ids"]
    return _one_bos(tokenizer, ids)


def worked_example(question: str) -> tuple[str, str]:
    """``(question, response)`` of the example that goes before ``question``, drawn by its hash: as
    good as at random over a data set, and the same in every run and after a resume."""
    digest = hashlib.sha256(question.encode()).digest()
    example = EXAMPLES[int.from_bytes(digest[:8]) % len(EXAMPLES)]
    reasoning, answer = "\n".join(example["reasoning"]), example["answer"]
    blocks = f"<reasoning>\n{reasoning}\n</reasoning>\n<answer>\n{answer}\n</answer>\n"
    return example["question"], blocks


def special_tokens_in(tokenizer: Any, text: str) -> list[str]:
    """The special tokens of the tokenizer whose names stand in a text, in order, with repeats."""
    return _special_tokens(tokenizer).findall(text)


@lru_cache(maxsize=8)  # once for each tokenizer, not for each question
def _special_tokens(tokenizer: Any) -> re.Pattern[str]:
    names = [token.content for token in tokenizer.added_tokens_decoder.values() if token.special]
    return re.compile("|".join(map(re.escape, sorted(names, key=len, reverse=True))) or r"(?!)")


def _render(tokenizer: Any, system: str, turns: list[dict[str, str]]) -> str:
    from jinja2.exceptions import TemplateError

    def render(*messages: dict[str, str]) -> str:
        return tokenizer.apply_chat_template(
            list(messages), add_generation_prompt=True, tokenize=False, **TEMPLATE_VARIABLES
        )

    with suppress(TemplateError):  # how templates refuse a role
        text = render({"role": "system", "content": system}, *turns)
        if system in text:
            return text
    return render({"role": "user", "content": f"{system}\n\n{turns[0]['content']}"}, *turns[1:])


def _one_bos(tokenizer: Any, ids: list[int]) -> list[int]:
    """Templates should write BOS themselves; some write none, some inherit a second one."""
    bos = tokenizer.bos_token_id
    if bos is None:
        return ids
    while ids[:2] == [bos, bos]:
        ids = ids[1:]
    adds_bos = tokenizer("")["input_ids"][:1] == [bos]
    return [bos, *ids] if adds_bos and bos not in ids else ids
