"""Where the paper of Memory-R+ is silent or its released code differs: one field per choice.

``MemoryR.paper()`` takes the paper's words, and where there are none the plainest reading, marked
"ours"; ``MemoryR.released()`` is the authors' GSM8K code. What the fields mean is in
:mod:`paperlib.methods.memory_r`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from paperlib.errors import UserError, check_choice
from paperlib.methods.episodic_memory import METRICS

_CHOICES = {
    "order": ("read-then-write", "write-then-read"),
    "stored_text": ("response", "reasoning"),
    "query_key": ("text", "embedding"),
    "query_metric": METRICS,
    "window_unit": ("steps", "samples"),
    "exploit_flip": ("before", "after"),
    "explore_warmup_unit": ("steps", "queries"),
    "success_test": ("accuracy", "string"),
}


@dataclass(frozen=True)
class MemoryR:
    """Settings of both memories. The defaults are the paper's reading for GSM8K."""

    k: int = 1  # K, Sec. 4.1; on AI-MO 1, 10, 20 or 30, Table 2
    max_queries: int = 7473  # N = |D|: pass the number of training questions
    max_responses: int = 100  # L
    # "read-then-write": the whole batch is compared, then stored (ours). "write-then-read":
    # rollout by rollout, each stored before it is compared, so that it meets itself
    order: str = "read-then-write"
    stored_text: str = "response"  # or "reasoning": the text between the tags only
    query_key: str = "text"  # same question = same text (ours); "embedding": bitwise equal vector
    query_metric: str = "cosine"  # or "l2"
    tau_success: float = 0.5  # eq. 2
    tau_failure: float = 0.5
    success_test: str = "accuracy"  # R of eq. 2; "string": answer text equal to the gold
    window: int = 100  # w, in window_unit, the current one included
    window_unit: str = "steps"  # not stated; ours. Or "samples"
    epsilon: float | None = 1e-8  # not stated; ours. None: no epsilon, see Exploit and Explore
    exploit_flip: str = "before"  # min-max of -distance; "after": 1 - min-max of distance
    explore_empty: float = 0.0  # reward while M^f holds nothing (ours)
    explore_warmup: int = 50  # in explore_warmup_unit: "e.g. 50 training steps"
    explore_warmup_unit: str = "steps"  # or "queries": distinct questions held by M^f
    beta_exploit: float = 1.0  # eq. 7
    beta_explore: float = 1.0
    file_under_first_prompt: bool = False  # released bug: all is filed under the first question
    encoder: str = "sentence-transformers/all-MiniLM-L6-v2"

    def __post_init__(self) -> None:
        for name, valid in _CHOICES.items():
            check_choice(name, getattr(self, name), valid)
        for name in ("k", "max_queries", "max_responses", "window"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} is {getattr(self, name)}; it must be at least 1")
        if self.explore_warmup < 0:
            raise UserError(f"explore_warmup is {self.explore_warmup}; it must be 0 (off) or more")
        if self.epsilon is not None and self.epsilon <= 0:
            raise UserError(f"epsilon is {self.epsilon}; it must be above 0, or None for none")

    @classmethod
    def paper(cls, **changes: Any) -> MemoryR:
        """The paper's words; "ours" above where it says nothing."""
        return cls(**changes)

    @classmethod
    def released(cls, method: str = "Memory-R+", **changes: Any) -> MemoryR:
        """The released GSM8K code. ``method`` matters to L alone, which is 1,000 for Memory-R."""
        check_choice("method", method, ("Memory-R", "Memory-R+"))
        settings: dict[str, Any] = {
            "max_queries": 10_000, "max_responses": 100 if method == "Memory-R+" else 1000,
            "order": "write-then-read", "stored_text": "reasoning", "query_key": "embedding",
            "query_metric": "l2", "success_test": "string", "window_unit": "samples",
            "epsilon": None, "exploit_flip": "after", "explore_empty": 1.0,
            "explore_warmup": 500, "explore_warmup_unit": "queries",
        }
        return cls(**{**settings, **changes})
