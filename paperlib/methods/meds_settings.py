"""Settings of MEDS: the paper's words, our reading where it has none, and the released code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from paperlib.errors import UserError, check_choice

_CHOICES = {
    "logit": ("normed", "raw"), "position": ("answer", "box"), "diff_layers": ("chosen", "all"),
    "method": ("hdbscan", "single"), "assignment": ("joint", "knn-history"),
    "memory_key": ("id", "text"),
}  # fmt: skip


@dataclass(frozen=True)
class Meds:
    """Settings of MEDS. Defaults: the paper's words, and our reading where it has none ("ours").

    Comments name the other reading, or the other rows of Table 2. Fewer than two points of a
    prompt are noise in both readings, and noise is paid as ``penalize_noise`` says.
    """

    alpha: float = 0.1  # 0.02 for Qwen3-8B (Sec. 4.1)
    beta: float = 0.2  # 0.04 for Qwen3-8B

    # feature; the first two tell the training loop what to record
    logit: str = "normed"  # logit lens, final norm first (ours); "raw": unnormed hidden states
    position: str = "answer"  # first non-space character of the answer; "box": after the last {
    last_n: int | None = None  # layers; None is the later half (Sec. 3.3), 14 in Sec. 4.1
    diff: bool = False  # adjacent differences: the "-diff" rows of Table 2
    diff_layers: str = "chosen"  # inside the last n; "all": over all layers, then the last n values
    normalize: bool = True  # L2

    # clusters and memory
    method: str = "hdbscan"  # "single": all rollouts of a prompt are one cluster (Table 2)
    min_cluster_size: int = 2  # also of near-identical ones
    min_samples: int = 1
    near_identical: float | None = 5e-3  # distance below which points are one cluster (ours)
    assignment: str = "joint"  # history and new ones are clustered, and counted, together (ours);
    # "knn-history": the history is; new ones join by a vote of their nearest neighbours in it
    knn: int = 3  # neighbours in that vote
    memory_key: str = "id"  # the problem's id; "text": prompt_key of the question

    # reward
    penalize_noise: bool = False  # ours; True: noise is one more cluster
    first_visit_free: bool = True  # False: any history counts

    def __post_init__(self) -> None:
        for name, valid in _CHOICES.items():
            check_choice(name, getattr(self, name), valid)
        least = {"alpha": 0, "beta": 0, "min_cluster_size": 2, "min_samples": 1, "knn": 1}
        for name, bound in least.items():
            if not getattr(self, name) >= bound:
                raise UserError(f"{name} is {getattr(self, name)}; it must be at least {bound}")
        if self.last_n is not None and self.last_n < 1:
            raise UserError(f"last_n is {self.last_n}; it must be at least 1, or None for half")
        if self.near_identical is not None and not self.near_identical >= 0:
            raise UserError(f"near_identical is {self.near_identical}; it must be >= 0 or None")

    @classmethod
    def paper(cls, **settings: Any) -> Meds:
        """The defaults, with ``settings``."""
        return cls(**settings)

    @classmethod
    def released(cls, **settings: Any) -> Meds:
        """The released code, with ``settings``."""
        code = {
            "logit": "raw", "position": "box", "diff_layers": "all", "near_identical": None,
            "assignment": "knn-history", "memory_key": "text", "penalize_noise": True,
            "first_visit_free": False,
        }  # fmt: skip
        return cls(**{**code, **settings})
