"""Where the paper of Memory-R+ is silent or its released code differs: one field per choice, and
what these choices make of a batch of rollouts.

``MemoryR.paper()`` takes the paper's words, and where there are none the plainest reading, marked
"ours"; ``MemoryR.released()`` is the authors' GSM8K code.
"""

import hashlib
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch

from paperlib.errors import UserError, check_choice
from paperlib.methods import released
from paperlib.methods.rollouts import Rollouts, check_settings
from paperlib.tasks.grading import grade_all


@dataclass(frozen=True)
class MemoryR:
    """Settings of both memories. The defaults are the paper's reading for GSM8K."""

    k: int = 1  # K, Sec. 4.1; on AI-MO 1, 10, 20 or 30, Table 2
    max_queries: int = 7473  # N = |D|: pass the number of training questions
    max_responses: int = 100  # L
    # the whole batch is compared, then stored (ours); or rollout by rollout, each stored before it
    # is compared, so that it meets itself
    order: Literal["read-then-write", "write-then-read"] = "read-then-write"
    stored_text: Literal["response", "reasoning"] = "response"  # "reasoning": between the tags only
    # same question = same text (ours), or bitwise equal vector
    query_key: Literal["text", "embedding"] = "text"
    query_metric: Literal["cosine", "l2"] = "cosine"
    tau_success: float = 0.5  # eq. 2
    tau_failure: float = 0.5
    success_test: Literal["accuracy", "string"] = "accuracy"  # R of eq. 2; "string": strict grading
    window: int = 100  # w, in window_unit, the current one included
    window_unit: Literal["steps", "samples"] = "steps"  # not stated; ours
    epsilon: float | None = 1e-8  # not stated; ours. None: no epsilon, see Exploit and Explore
    # min-max of -distance, or 1 - min-max of distance
    exploit_flip: Literal["before", "after"] = "before"
    explore_empty: float = 0.0  # reward while M^f holds nothing (ours)
    explore_warmup: int = 50  # in explore_warmup_unit: "e.g. 50 training steps"
    explore_warmup_unit: Literal["steps", "queries"] = "steps"  # "queries": questions held by M^f
    beta_exploit: float = 1.0  # eq. 7
    beta_explore: float = 1.0
    file_under_first_prompt: bool = False  # released bug: all is filed under the first question
    encoder: str = "sentence-transformers/all-MiniLM-L6-v2"

    def __post_init__(self) -> None:
        check_settings(self, k=1, max_queries=1, max_responses=1, window=1, explore_warmup=0)
        if self.epsilon is not None and self.epsilon <= 0:
            raise UserError(f"epsilon is {self.epsilon}; it must be above 0, or None for none")

    @classmethod
    def paper(cls, **changes: Any) -> "MemoryR":
        """The defaults, with ``changes``."""
        return cls(**changes)

    @classmethod
    def released(cls, method: str = "Memory-R+", **changes: Any) -> "MemoryR":
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


@dataclass
class Batch:
    """``n`` rollouts as vectors, and what the memory says of them while it is read."""

    step: int
    keys: list[str]  # [n] what a rollout's question is filed under
    queries: torch.Tensor  # [n, d] Enc(question)
    responses: torch.Tensor  # [n, d] Enc(response)
    outcome: np.ndarray  # [n] R of eq. 2
    said: np.ndarray  # [n] bool: neither text is blank; a blank one is ignored (ours)
    rewards: np.ndarray  # [n] what an empty memory pays, at first
    raw: np.ndarray  # [n] eq. 4 or 5; NaN of those that were not compared
    nearest: dict[tuple[str, int], torch.Tensor] = field(default_factory=dict)  # eq. 3


def embed(rollouts: Rollouts, settings: MemoryR, encoder: Any) -> Batch:
    """The batch; vectors that are not finite would be remembered for ever, and are refused."""
    n, questions, texts = len(rollouts), list(rollouts.questions), list(rollouts.completions)
    outcome = np.asarray(rollouts.accuracy)
    if settings.file_under_first_prompt:
        questions = questions[:1] * n
    if settings.success_test == "string":
        outcome = np.array(grade_all(texts, rollouts.golds, "strict"), dtype=np.float64)
    if settings.stored_text == "reasoning":
        texts = [released.reasoning_text(text) for text in texts]
    queries, responses = encoder.encode(questions + texts).split(n)
    bad = (~torch.isfinite(queries + responses).all(1)).nonzero()[:, 0].tolist()
    if bad:
        raise UserError(
            f"the embeddings of {len(bad)} of {n} rollouts hold NaN or infinity (the first is "
            f"rollout {bad[0]}, problem {rollouts.problem_ids[bad[0]]}); encoder "
            f"{settings.encoder!r}"
        )
    keys = questions
    if settings.query_key == "embedding":
        keys = [hashlib.sha256(vector.numpy().tobytes()).hexdigest() for vector in queries]
    said = np.array([bool(q.strip() and t.strip()) for q, t in zip(questions, texts, strict=True)])
    empty, unread = np.zeros(n), np.full(n, np.nan)
    return Batch(rollouts.step, keys, queries, responses, outcome, said, empty, unread)
