"""MEDS (arXiv 2604.11297) as differences from DAPO, and its penalty as a reward term.

Where the model predicts the first token of its final answer, that token's logit at each layer is
the rollout's feature (:func:`features`). The wrong rollouts of each prompt are remembered and
grouped by feature (:func:`cluster`), and a wrong one loses the more, the larger its cluster
(:func:`penalty`), before the group's mean and standard deviation are taken. Right rollouts, and
those without a final answer, are never stored and never penalised; a prompt's first visit only
fills the memory (Sec. 4.3). Groups that dynamic sampling drops never come here.

The published numbers come from released code that differs from these words: :class:`Meds` has a
field for each difference.
"""

import hashlib
import re
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from paperlib.errors import UserError
from paperlib.methods.clustering import (
    NOISE,
    hdbscan_labels,
    knn_vote,
    near_identical_groups,
    unit_rows,
)
from paperlib.methods.rollouts import Rollouts, check_settings, rows_by_key

NOT_CLUSTERED = -2  # label of right rollouts, of those without a feature, and where no memory is


@dataclass(frozen=True)
class Meds:
    """Settings of MEDS. Defaults: the paper's words, and our reading where it has none ("ours");
    comments name the other reading, or the other rows of Table 2."""

    alpha: float = 0.1  # 0.02 for Qwen3-8B (Sec. 4.1)
    beta: float = 0.2  # 0.04 for Qwen3-8B

    # feature; the first two tell the training loop what to record
    logit: Literal["normed", "raw"] = "normed"  # logit lens, final norm first (ours)
    # first non-space character of the answer, or what follows the last {
    position: Literal["answer", "box"] = "answer"
    last_n: int | None = None  # layers; None is the later half (Sec. 3.3), 14 in Sec. 4.1
    diff: bool = False  # adjacent differences: the "-diff" rows of Table 2
    # inside the last n, or over all layers and then the last n values
    diff_layers: Literal["chosen", "all"] = "chosen"
    normalize: bool = True  # L2

    # clusters and memory
    # "single": all rollouts of a prompt are one cluster (Table 2)
    method: Literal["hdbscan", "single"] = "hdbscan"
    min_cluster_size: int = 2  # also of near-identical ones
    min_samples: int = 1
    # distance below which points are one cluster: bfloat16's rounding of a unit vector (ours)
    near_identical: float | None = 5e-3
    # history and new ones are clustered, and counted, together (ours); or the history alone, which
    # new ones join by a vote of their nearest neighbours in it
    assignment: Literal["joint", "knn-history"] = "joint"
    knn: int = 3  # neighbours in that vote
    memory_key: Literal["id", "text"] = "id"  # the problem's id, or prompt_key of the question

    # reward
    penalize_noise: bool = False  # ours; True: noise is one more cluster
    first_visit_free: bool = True  # False: any history counts

    def __post_init__(self) -> None:
        check_settings(
            self, alpha=0, beta=0, last_n=1, min_cluster_size=2, min_samples=1, near_identical=0,
            knn=1,
        )

    @classmethod
    def paper(cls, **settings: Any) -> "Meds":
        """The defaults, with ``settings``."""
        return cls(**settings)

    @classmethod
    def released(cls, **settings: Any) -> "Meds":
        """The released code, with ``settings``."""
        code = {
            "logit": "raw", "position": "box", "diff_layers": "all", "near_identical": None,
            "assignment": "knn-history", "memory_key": "text", "penalize_noise": True,
            "first_visit_free": False,
        }  # fmt: skip
        return cls(**{**code, **settings})


def features(layer_logits: np.ndarray, settings: Meds) -> np.ndarray:
    """Feature vectors ``[n, dims]`` float64 from layer logits ``[n, layers]`` (Sec. 3.3); rows of
    NaN (no final answer) stay NaN."""
    values = np.asarray(layer_logits, dtype=np.float64)
    finite = np.isfinite(values).all(axis=1)
    bad = np.flatnonzero(~finite & ~np.isnan(values).all(axis=1))
    if bad.size:
        raise UserError(
            f"layer logits of {bad.size} of {len(values)} rollouts hold NaN or infinity (the first "
            f"is rollout {bad[0]}); only a row of NaN alone, no final answer, is valid"
        )
    layers = values.shape[1]
    last_n = layers // 2 if settings.last_n is None else settings.last_n
    inside = settings.diff and settings.diff_layers == "chosen"
    if not 1 + inside <= last_n <= layers:
        raise UserError(
            f"last_n is {last_n} with diff={settings.diff} and {layers} recorded layers; "
            f"valid: {1 + inside} to {layers}"
        )
    if settings.diff:
        values = np.diff(values, axis=1)
    values = values[:, inside - last_n :]  # n layers have n - 1 differences between them
    return unit_rows(values) if settings.normalize else values


def cluster(points: np.ndarray, settings: Meds) -> np.ndarray:
    """Labels ``[n]`` of one prompt's feature vectors ``[n, d]``; fewer than 2 are noise.

    HDBSCAN never returns the root of its tree as a cluster, so points that are all alike, the
    strongest repetition there is, come back as noise (identical) or in arbitrary pieces (one blob).
    That is why groups of ``min_cluster_size`` or more near-identical points
    (``settings.near_identical``) are clusters of their own and HDBSCAN labels the rest (ours;
    ``allow_single_cluster`` would join different mistakes). Released code: HDBSCAN on everything.
    """
    points = np.ascontiguousarray(points, dtype=np.float64)
    bad = np.flatnonzero(~np.isfinite(points).all(axis=1))
    if bad.size:
        raise UserError(
            f"{bad.size} of {len(points)} points hold NaN or infinity (the first is row {bad[0]}); "
            "only finite features can be clustered"
        )
    labels = np.full(len(points), NOISE)
    if len(points) < 2:
        return labels
    if settings.method == "single":
        return np.zeros_like(labels)
    size, groups = settings.min_cluster_size, []
    if settings.near_identical is not None:
        groups = near_identical_groups(points, settings.near_identical, size)
    for label, members in enumerate(groups):
        labels[members] = label
    rest = np.flatnonzero(labels == NOISE)
    found = hdbscan_labels(points[rest], min_cluster_size=size, min_samples=settings.min_samples)
    labels[rest] = np.where(found == NOISE, NOISE, found + len(groups))
    return labels


def penalty(cluster_size: np.ndarray | int, alpha: float, beta: float) -> np.ndarray:
    """min(alpha ln(abs(C_k) + 1), beta), the penalty of Sec. 3.4, for each cluster size."""
    return np.minimum(alpha * np.log1p(cluster_size), beta)


def prompt_key(question: str) -> str:
    """The released code's memory key: MD5 of the text without tags, white space folded.

    What it takes for a tag may be mathematics: "x<3 and y>2" becomes "x2".
    """
    text = " ".join(re.sub(r"<[^>]+>", "", question).split())
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


@dataclass(unsafe_hash=True)  # equal by settings; the memory is no field, so no part of a config
class ClusterPenalty:
    """Minus :func:`penalty` for wrong rollouts, 0 for right ones; remembers the wrong ones. All
    rollouts of a prompt in one call are one visit."""

    settings: Meds = Meds()
    name: ClassVar[str] = "cluster_penalty"
    needs_layer_logits: ClassVar[bool] = True

    def __post_init__(self) -> None:
        self.memory: dict[str, np.ndarray] = {}  # key -> [stored, dims] features
        self.visits: dict[str, int] = {}  # key -> calls that held the prompt
        # of the last call's rollouts: the size of the cluster that was paid for, and its label
        self.last_sizes = self.last_labels = np.zeros(0, dtype=np.int64)

    def __call__(self, rollouts: Rollouts) -> np.ndarray:
        """Rewards ``[n]``, from -beta to 0."""
        if rollouts.layer_logits is None:
            raise UserError(
                "reward term 'cluster_penalty' got rollouts without layer_logits; the training "
                "loop must record them (needs_layer_logits)"
            )
        vectors = features(rollouts.layer_logits, self.settings)
        answered = ~np.isnan(vectors).any(axis=1)
        wrong = np.asarray(rollouts.accuracy) < 0.5
        self.last_sizes = np.zeros(len(rollouts), dtype=np.int64)
        self.last_labels = np.full(len(rollouts), NOT_CLUSTERED)
        keys = rollouts.problem_ids
        if self.settings.memory_key == "text":
            keys = [prompt_key(question) for question in rollouts.questions]
        for key, rows in rows_by_key(keys).items():
            rows = rows[wrong[rows] & answered[rows]]
            self.last_labels[rows], self.last_sizes[rows] = self._visit(key, vectors[rows])
        # 0.0 minus, so that an unpenalised rollout gets 0.0 and not -0.0
        return 0.0 - penalty(self.last_sizes, self.settings.alpha, self.settings.beta)

    def _visit(self, key: str, new: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Labels and cluster sizes of a prompt's new wrong rollouts, which are then stored."""
        history, free = self.memory.get(key, new[:0]), self.settings.first_visit_free
        free = free and key not in self.visits
        self.visits[key] = self.visits.get(key, 0) + 1
        self.memory[key] = everything = np.concatenate([history, new])
        joint = self.settings.assignment == "joint"
        if free or not len(new) or not (joint or len(history)):
            return np.full(len(new), NOT_CLUSTERED), np.zeros(len(new), dtype=np.int64)
        # the released code fits after storing; fitting when next needed gives the same labels
        stored = cluster(everything if joint else history, self.settings)
        labels = stored[len(history) :]
        if not joint:
            labels = knn_vote(history, stored, new, self.settings.knn)
        sizes = (labels[:, None] == stored).sum(axis=1)
        if not self.settings.penalize_noise:
            sizes[labels == NOISE] = 0
        return labels, sizes

    def state_dict(self) -> dict[str, Any]:
        """The memory as float64 tensors and plain values, for ``torch.save``."""
        import torch  # seconds to import, and only checkpoints need it

        tensors = {key: torch.tensor(vectors) for key, vectors in self.memory.items()}
        return {"memory": tensors, "visits": dict(self.visits)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from :meth:`state_dict` of a term with the same settings."""
        self.memory = {key: tensor.numpy().copy() for key, tensor in state["memory"].items()}
        self.visits = dict(state["visits"])
