"""The questions that an LLM is asked about rollouts, in words from annotate_prompts.toml around the
texts, the form of the answers, and the file that keeps them."""

import hashlib
import json
import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock

from paperlib.errors import UserError
from paperlib.files import read_json, read_jsonl, write_json_atomic

Item = Mapping[str, str | Sequence[str]]  # one text or one group of texts for each part of a task

_WORDS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
CATEGORIES: dict[str, str] = _WORDS["categories"]  # of errors: name -> meaning
TINY_CATEGORIES: dict[str, str] = _WORDS["tiny_categories"]  # the tiny world's own -> ours
PRICES: dict[str, list[float]] = _WORDS["prices"]  # of models: see the file


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
            raise UserError(f"an item of {self.name} must have {list(self.parts)}: {item!r:.100}")
        groups = {part: self._texts(part, item[part]) for part in self.parts}
        tag = hashlib.sha256(json.dumps(groups).encode()).hexdigest()[:16]
        blocks = [f"The id of the tags: {tag}"]
        for part, texts in groups.items():
            name = f"{part.removesuffix('s')}-{tag}"
            blocks += [f"<{name}>\n{text}\n</{name}>" for text in texts]
        return "\n\n".join(blocks)

    def _texts(self, part: str, given: str | Sequence[str]) -> list[str]:
        """As valid UTF-8, the middle left out of those longer than ``max_chars`` characters."""
        texts = [given] if isinstance(given, str) else given
        if not (isinstance(texts, Sequence) and texts and all(isinstance(t, str) for t in texts)):
            raise UserError(f"{part} of {self.name} must be a text or a non-empty group of texts")
        half, shown = self.max_chars // 2, []
        for text in (text.encode("utf-8", "replace").decode() for text in texts):
            left_out = len(text) - 2 * half
            cut = f"{text[:half]}\n[... {left_out} characters left out ...]\n{text[-half:]}"
            shown.append(cut if left_out > 0 else text)
        return shown

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


_ERROR = _WORDS["error_category"]
_ERROR["values"] = list(CATEGORIES)
_ERROR["instructions"] += "".join(f"- {name}: {what}\n" for name, what in CATEGORIES.items())
ERROR_CATEGORY, WITHIN_STEP_DIVERSITY, ACROSS_STEP_NOVELTY = (
    Task(name=name, **_WORDS[name])
    for name in ("error_category", "within_step_diversity", "across_step_novelty")
)


@dataclass(frozen=True)
class Annotation:
    """What is known of an item."""

    value: str | int | None  # None: missing
    reason: str = ""  # of a missing one
    why: str = ""  # the model's own sentence


class Cache:
    """``<task>-v<version>-<model>.jsonl``, one answer a line (one that is deleted is asked again),
    and the batches under way."""

    def __init__(self, folder: Path | str, model: str, task: Task) -> None:
        stem = re.sub(r"[^\w.-]", "_", f"{task.name}-v{task.version}-{model}")
        self.path = Path(folder) / f"{stem}.jsonl"
        self._batches = Path(folder) / f"{stem}.batches.json"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """For one process at a time. Half a line, left by a kill, is cut off."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(self.path.with_suffix(".lock")):
            data = self.path.read_bytes() if self.path.exists() else b""
            if not data.endswith(b"\n") and data:
                os.truncate(self.path, data.rfind(b"\n") + 1)
            yield

    def read(self) -> dict[str, Annotation]:
        """All answers there are, by key."""
        return {
            row["key"]: Annotation(row["value"], row.get("reason", ""), row.get("why", ""))
            for row in read_jsonl(self.path)
        }

    def save(self, key: str, answer: Annotation) -> None:
        """Append one answer, at once and to the disk."""
        with open(self.path, "a", encoding="ascii", newline="\n") as file:
            file.write(json.dumps({"key": key, **asdict(answer)}) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def batches(self) -> list[dict[str, Any]]:
        """The batches under way: ``id`` and ``keys`` of each."""
        return read_json(self._batches) if self._batches.exists() else []

    def set_batches(self, batches: list[dict[str, Any]]) -> None:
        write_json_atomic(self._batches, batches)
