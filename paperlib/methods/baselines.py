"""The reward terms of the baselines; which method has which is in experiments/recipes.py.

Of Memory-R+'s baselines (arXiv 2504.02273, Sec. 4) R1 has ``Correctness`` and format terms, Cosine
also ``CosineLength``; of MEDS's (arXiv 2604.11297, Sec. 4.1) DAPO adds ``Overlong``.

Terms with a ``reading`` follow either the plain words ("paper") or the released GSM8K code
("released", :mod:`paperlib.methods.released`). The paper does not print the format rewards; our
plain reading keeps the released rules and mends what is plainly unintended: an answer needs its
section (or box), sections may run over lines and hold no further tag, and the tail that
``XmlCount`` punishes is what follows the closing tag.
"""

import math
import re
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from paperlib.errors import UserError
from paperlib.methods import released
from paperlib.methods.rollouts import Rollouts, check_settings
from paperlib.tasks.grading import extract_answer, grade_all

Rule = Literal["math", "string"]  # the grader's outcome; the released code's string equality


def _correct(rollouts: Rollouts, rule: Rule) -> np.ndarray:
    """``[n]`` float64, 1.0 or 0.0."""
    graded = rollouts.accuracy
    if rule == "string":
        graded = grade_all(rollouts.completions, rollouts.golds, "strict")
    return np.asarray(graded, dtype=np.float64)


@dataclass(frozen=True)
class Correctness:
    """``value`` for a correct answer, else 0."""

    rule: Rule = "math"
    value: float = 1.0
    name: ClassVar[str] = "correctness"

    def __post_init__(self) -> None:
        check_settings(self)

    def __call__(self, rollouts: Rollouts) -> list[float]:
        return (self.value * _correct(rollouts, self.rule)).tolist()


@dataclass(frozen=True)
class _TextTerm:
    """Rewards of each completion's text by itself, in one of two readings."""

    reading: Literal["paper", "released"] = "paper"

    def __post_init__(self) -> None:
        check_settings(self)

    def __call__(self, rollouts: Rollouts) -> list[float]:
        return [self.at(text) for text in rollouts.completions]

    def at(self, text: str) -> float:
        """The reward of one completion."""
        return (self._released if self.reading == "released" else self._paper)(text)


@dataclass(frozen=True)
class IntegerAnswer(_TextTerm):
    """0.5 for an answer of digits only, right or wrong (Sec. 4.1, "tailored for GSM8K")."""

    name: ClassVar[str] = "integer"
    _released = staticmethod(released.integer)

    def _paper(self, text: str) -> float:
        answer = extract_answer(text)
        return 0.5 if answer is not None and answer.isdigit() else 0.0


@dataclass(frozen=True)
class _FormatTerm(_TextTerm):
    """Those that look at tags; a subclass has a pattern ``_sections``, or its own ``_paper``."""

    tag: Literal["reasoning", "think"] = "reasoning"  # "think" on AI-MO

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.reading == "released" and self.tag != "reasoning":
            raise UserError(
                f"tag is {self.tag!r} with reading 'released'; that code knows 'reasoning' only"
            )

    def _paper(self, text: str) -> float:
        body = rf"(?:(?!</?(?:{self.tag}|answer)>).)*"  # over lines too, but without a further tag
        pattern = self._sections.format(tag=self.tag, body=body)
        return 0.5 if re.match(pattern, text, re.DOTALL) else 0.0


@dataclass(frozen=True)
class XmlCount(_FormatTerm):
    """The paper's "XML reward": 0.125 for each of four tags that stands exactly once on its own
    line, less 0.001 a character of tail in the two answer tags' parts, as in the released code. The
    tail is what follows the last ``</answer>``, the newline that ends its line excepted."""

    name: ClassVar[str] = "xmlcount"
    _released = staticmethod(released.xmlcount)

    def _paper(self, text: str) -> float:
        _, closed, tail = text.rpartition("\n</answer>")
        penalty = 0.001 * len(tail.removeprefix("\n")) if closed else 0.0
        reward = 0.125 * (text.count(f"<{self.tag}>\n") == 1)
        reward += 0.125 * (text.count(f"\n</{self.tag}>\n") == 1)
        for part in ("\n<answer>\n", "\n</answer>"):
            if text.count(part) == 1:
                reward += 0.125 - penalty
        return reward


@dataclass(frozen=True)
class SoftFormat(_FormatTerm):
    """0.5 if the completion begins with the reasoning and the answer section."""

    name: ClassVar[str] = "soft_format"
    _released = staticmethod(released.soft_format)
    _sections = r"<{tag}>{body}</{tag}>\s*<answer>{body}</answer>"


@dataclass(frozen=True)
class StrictFormat(_FormatTerm):
    """0.5 if the completion is the two sections, every tag on its own line, a final newline."""

    name: ClassVar[str] = "strict_format"
    _released = staticmethod(released.strict_format)
    _sections = r"<{tag}>\n{body}\n</{tag}>\n<answer>\n{body}\n</answer>\n\Z"


# a numbered item counts at the very start of the text only, as in Open-R1
_STEP = re.compile(r"Step \d+:|\A\d+\.|\n-|\n\*|First,|Second,|Next,|Finally,")


@dataclass(frozen=True)
class ReasoningSteps:
    """min(1, n / 3) for n signs of a listed step (Sec. 4.2; Open-R1's markers)."""

    name: ClassVar[str] = "reasoning_steps"

    def __call__(self, rollouts: Rollouts) -> list[float]:
        return [min(1.0, len(_STEP.findall(text)) / 3) for text in rollouts.completions]


@dataclass(frozen=True)
class CosineLength:
    """Right answers lose from 1.0 to 0.5 with length, wrong ones rise from -1.0 to -0.5: half a
    cosine over ``length / max_length``, which without ``clamp`` swings back beyond it. The paper
    states neither unit nor clamp (ours)."""

    max_length: int  # in ``unit``
    unit: Literal["tokens", "characters"] = "tokens"
    clamp: bool = True
    rule: Rule = "math"
    name: ClassVar[str] = "cosine"

    def __post_init__(self) -> None:
        check_settings(self, max_length=1)

    @classmethod
    def released(cls) -> "CosineLength":
        """Released code: characters, 200 of them, not clamped; string equality."""
        return cls(200, unit="characters", clamp=False, rule="string")

    def __call__(self, rollouts: Rollouts) -> list[float]:
        tokens = self.unit == "tokens"
        lengths = rollouts.lengths if tokens else [len(text) for text in rollouts.completions]
        correct = _correct(rollouts, self.rule)
        return [self.at(n, correct=bool(c)) for n, c in zip(lengths, correct, strict=True)]

    def at(self, length: int, *, correct: bool) -> float:
        """The reward of one completion of ``length`` units."""
        progress = length / self.max_length
        if self.clamp:
            progress = min(progress, 1.0)
        size = 0.5 + 0.25 * (1 + math.cos(math.pi * progress))
        return size if correct else -size


@dataclass(frozen=True)
class Overlong:
    """DAPO's soft overlong punishment (MEDS, App. A.2): 0 up to ``max_length - buffer`` tokens,
    from there linear to -1 at ``max_length``, -1 beyond. Released code: buffer 512."""

    max_length: int  # L_max
    buffer: int  # L_cache
    name: ClassVar[str] = "overlong"

    def __post_init__(self) -> None:
        if not 1 <= self.buffer <= self.max_length:
            raise UserError(
                f"buffer is {self.buffer}; it must be from 1 to max_length = {self.max_length}"
            )

    def __call__(self, rollouts: Rollouts) -> list[float]:
        return self.at(rollouts.lengths)

    def at(self, lengths: Any) -> list[float]:
        """The rewards of completions of these lengths in tokens."""
        room = self.max_length - self.buffer - np.asarray(lengths)
        return np.clip(room / self.buffer, -1.0, 0.0).tolist()
