"""The three questions that an LLM is asked about rollouts: their words, from annotate_prompts.toml,
around the texts, and the form of the answers."""

import hashlib
import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paperlib.errors import UserError

Item = Mapping[str, str | Sequence[str]]  # one text or one group of texts for each part of a task

_WORDS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
CATEGORIES: dict[str, str] = _WORDS["categories"]  # of errors: name -> meaning
TINY_CATEGORIES: dict[str, str] = _WORDS["tiny_categories"]  # the tiny world's own -> ours


@dataclass(frozen=True)
class Task:
    """One question to the model; ``values`` are all valid answers, under the JSON key ``label``."""

    name: str
    version: int
    parts: Sequence[str]  # what an item has; a part in the plural is a group of texts
    label: str
    values: Sequence[str] | Sequence[int]
    instructions: str
    max_chars: int  # of one text; the middle of a longer one is left out, visibly

    @property
    def system(self) -> str:
        kind = "one of the words above" if isinstance(self.values[0], str) else "an integer"
        form = f'{{"{self.label}": <{kind}>, "why": "<one short sentence>"}}'
        words = f"{self.instructions}\n{_WORDS['data']}\n"
        return f"{words}Reply with one JSON object and nothing else:\n{form}"

    @property
    def schema(self) -> dict[str, Any]:
        kind = "string" if isinstance(self.values[0], str) else "integer"
        label, why = {"type": kind, "enum": list(self.values)}, {"type": "string"}
        return {
            "type": "object", "properties": {self.label: label, "why": why},
            "required": [self.label], "additionalProperties": False,
        }

    def message(self, item: Item) -> str:
        """The user message. Its tags carry a digest of the texts, which no text can foresee, so
        that none can close its own block."""
        if not isinstance(item, Mapping) or set(item) != set(self.parts):
            have = sorted(item) if isinstance(item, Mapping) else type(item).__name__
            raise UserError(f"an item of {self.name} has {have}; it must have {list(self.parts)}")
        groups = {part: self._texts(part, item[part]) for part in self.parts}
        tag = hashlib.sha256(json.dumps(groups).encode()).hexdigest()[:16]
        blocks = [f"The id of the tags: {tag}"]
        for part, texts in groups.items():
            name = f"{part.removesuffix('s')}-{tag}"
            blocks += [f"<{name}>\n{text}\n</{name}>" for text in texts]
        return "\n\n".join(blocks)

    def _texts(self, part: str, given: str | Sequence[str]) -> list[str]:
        texts = [given] if isinstance(given, str) or not hasattr(given, "__iter__") else [*given]
        if not texts or not all(isinstance(text, str) for text in texts):
            raise UserError(f"{part} of {self.name} must be a text or a non-empty group of texts")
        return [_shorten(text, self.max_chars) for text in texts]

    def parse(self, text: str) -> tuple[str | int, str]:
        """The value of an answer, which is :attr:`schema`'s JSON and nothing else, and the model's
        reason for it. What is wrong with another answer is a ValueError; nothing is repaired."""
        try:
            found = json.loads(text)
            value, why = found.pop(self.label), found.pop("why", "")
        except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
            raise ValueError(f"the answer {text!r:.100} is no JSON with {self.label!r}") from None
        # 3.0 and true are no integers here, though they are equal to some
        if found or type(value) is not type(self.values[0]) or value not in self.values:
            raise ValueError(f"the answer {text!r:.100} is none of those asked for")
        return value, str(why)


def _shorten(text: str, limit: int) -> str:
    """``text`` as valid UTF-8, its middle left out if it is longer than ``limit`` characters."""
    text = text.encode("utf-8", "replace").decode()
    if len(text) <= limit:
        return text
    half = limit // 2
    left_out = len(text) - 2 * half
    return f"{text[:half]}\n[... {left_out} characters left out ...]\n{text[-half:]}"


_ERROR = _WORDS["error_category"]
_ERROR["values"] = list(CATEGORIES)
_ERROR["instructions"] += "".join(f"- {name}: {what}\n" for name, what in CATEGORIES.items())
ERROR_CATEGORY, WITHIN_STEP_DIVERSITY, ACROSS_STEP_NOVELTY = (
    Task(name=name, **_WORDS[name])
    for name in ("error_category", "within_step_diversity", "across_step_novelty")
)
