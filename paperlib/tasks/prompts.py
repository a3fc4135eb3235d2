"""System prompts of both papers and how a question becomes prompt tokens."""

from __future__ import annotations

from typing import Any

from paperlib.errors import check_choice

SYSTEM_PROMPTS: dict[str, str] = {
    # Memory-R+, GSM8K. The released code asks for the same two blocks, each tag on its own line.
    "tags": (
        "Respond in this format:\n"
        "<reasoning>\n...\n</reasoning>\n<answer>\n...\n</answer>"
    ),
    # Memory-R+, Table 3: the DeepSeek-R1 prompt, used on AI-MO.
    "think": (
        "A conversation between User and Assistant. The user asks a question, and the Assistant "
        "solves it. The Assistant first thinks about the reasoning process in the mind and then "
        "provides the user with the answer. The reasoning process and answer are enclosed within "
        "<think> </think> and <answer> </answer> tags, respectively, i.e., <think> reasoning "
        "process here </think><answer> answer here </answer>"
    ),
    # MEDS: the Qwen-Math template.
    "boxed": "Please reason step by step, and put your final answer within \\boxed{}.",
}


def build_prompt(tokenizer: Any, question: str, prompt: str) -> list[int]:
    """Token ids of system prompt and question, ready for the assistant's first token.

    Raises:
        UserError: ``prompt`` is not a key of :data:`SYSTEM_PROMPTS`.
    """
    check_choice("prompt", prompt, SYSTEM_PROMPTS)
    messages = [
        {"role": "system", "content": SYSTEM_PROMPTS[prompt]},
        {"role": "user", "content": question},
    ]
    return list(
        tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
    )
