"""Does a response go back to what it wrote? Counting by phrases (Memory-R+, with Tables 7 to 9).

The paper counts "phrases like" two that it quotes ("let's re-evaluate", "let's consider an
alternative approach") and gives no list; this list is ours. A phrase says that the writer means to
check or doubts; it does not say that the check is made, or right.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

# "Let me check" is also what solutions of the tiny world say before their check. There the habit
# is planted: in 15 % of the right solutions the base model learned from and 5 % of the wrong ones.
OPENINGS = ("let's", "let us", "let me")
ACTS = (
    "re-evaluate", "re-examine", "re-check", "reconsider", "double-check", "check", "verify",
    "consider an alternative approach", "consider another approach", "try another approach",
    "try an alternative approach", "try a different approach",
)  # fmt: skip
ALONE = ("on second thought", "to double-check", "to verify")
PHRASES = (*(f"{opening} {act}" for opening in OPENINGS for act in ACTS), *ALONE)


def _pattern() -> re.Pattern[str]:
    # "re-evaluate", "reevaluate", "double check"; white space may be a line break
    parts = [re.escape(p).replace(r"\-", "[- ]?").replace(r"\ ", r"\s+") for p in PHRASES]
    longest_first = "|".join(sorted(parts, key=len, reverse=True))
    return re.compile(rf"(?<![\w-])(?:{longest_first})(?![\w-])", re.IGNORECASE)


_PATTERN = _pattern()


def self_verification_phrases(response: str) -> list[str]:
    """The phrases of a response in order, lower case, as they stand there but for white space.

    Whole words; overlapping phrases are one, the longer of those that start at the same word.
    """
    text = response.replace("\u2019", "'")  # a typographic apostrophe
    return [" ".join(match.lower().split()) for match in _PATTERN.findall(text)]


def count_self_verifying(responses: Iterable[str]) -> int:
    """How many responses hold a phrase; however many it holds, a response counts once."""
    return sum(bool(self_verification_phrases(response)) for response in responses)


def wilson_interval(count: int, of: int) -> tuple[float, float]:
    """95 % interval (Wilson's) of a share ``count / of``, as shares. It knows one model only: the
    spread over training seeds is another matter."""
    from scipy.stats import binomtest

    interval = binomtest(count, of).proportion_ci(method="wilson")
    return float(interval.low), float(interval.high)
