"""MEDS (arXiv 2604.11297) as differences from DAPO, and its penalty as a reward term.

DAPO is described in :mod:`paperlib.methods.baselines`. MEDS changes the reward, nothing else:

1. **Feature** (Sec. 3.3). Where the model predicts the first token of its final answer, the logit
   of that token is read at each layer; the later half of the layers, L2-normalised, is the
   rollout's feature vector (:func:`features`). A rollout without a final answer has none.
2. **Memory** (Sec. 3.4). For each prompt the features of all its past wrong rollouts are kept.
   Right rollouts are never stored and never penalised.
3. **Clusters** (Sec. 3.4). HDBSCAN groups the wrong rollouts of a prompt by feature
   (:func:`paperlib.methods.clustering.cluster`).
4. **Reward** (Sec. 3.4). A wrong rollout in cluster C_k loses min(alpha ln(abs(C_k) + 1), beta),
   before the group's mean and standard deviation are taken (:func:`penalty`).
5. **First epoch** (Sec. 4.3). It only fills the memory: no penalty at a prompt's first visit.

Dynamic sampling stays DAPO's: groups are filtered on raw accuracy, dropped ones never come here.

The published numbers come from released code that differs from these words:
:class:`~paperlib.methods.meds_settings.Meds` has a field for each difference.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from paperlib.errors import UserError
from paperlib.methods.clustering import NOISE, cluster, knn_vote, unit_rows
from paperlib.methods.meds_settings import Meds
from paperlib.methods.rollouts import Rollouts, rows_by_key

NOT_CLUSTERED = -2  # label of right rollouts, of those without a feature, and where no memory is


def features(layer_logits: np.ndarray, settings: Meds) -> np.ndarray:
    """Feature vectors ``[n, dims]`` float64 from layer logits ``[n, layers]`` (Sec. 3.3).

    Rows of NaN (no final answer) stay NaN.
    """
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
    least = 2 if settings.diff and settings.diff_layers == "chosen" else 1
    if not least <= last_n <= layers:
        raise UserError(
            f"last_n is {last_n} with diff={settings.diff} and {layers} recorded layers; "
            f"valid: {least} to {layers}"
        )
    if settings.diff and settings.diff_layers == "all":
        values = np.diff(values, axis=1)
    values = values[:, -last_n:]
    if settings.diff and settings.diff_layers == "chosen":
        values = np.diff(values, axis=1)
    return unit_rows(values) if settings.normalize else values


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
    """Minus :func:`penalty` for wrong rollouts, 0 for right ones; remembers the wrong ones.

    All rollouts of a prompt in one call are one visit. After a call the attributes ``last_*`` tell
    what it did, the arrays per rollout.
    """

    settings: Meds = Meds()
    name: ClassVar[str] = "cluster_penalty"
    needs_layer_logits: ClassVar[bool] = True

    def __post_init__(self) -> None:
        self.memory: dict[str, np.ndarray] = {}  # key -> [stored, dims] features
        self.visits: dict[str, int] = {}  # key -> calls that held the prompt
        self.last_sizes = np.zeros(0, dtype=np.int64)  # [n] size of the cluster that was paid for
        self.last_labels = np.zeros(0, dtype=np.int64)  # [n] within the prompt, or NOT_CLUSTERED
        self.last_noise = 0  # rollouts labelled noise
        self.last_no_answer = 0  # wrong rollouts without a final answer
        self.last_clusters = 0  # clusters that held a rollout of the call, over all prompts

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
        self.last_no_answer = int((wrong & ~answered).sum())
        self.last_clusters = 0
        for key, rows in rows_by_key(self._keys(rollouts)).items():
            rows = rows[wrong[rows] & answered[rows]]
            labels, sizes = self._visit(key, vectors[rows])
            self.last_labels[rows], self.last_sizes[rows] = labels, sizes
            self.last_clusters += len(np.unique(labels[labels > NOISE]))
        self.last_noise = int((self.last_labels == NOISE).sum())
        # 0.0 minus, so that an unpenalised rollout gets 0.0 and not -0.0
        return 0.0 - penalty(self.last_sizes, self.settings.alpha, self.settings.beta)

    def _keys(self, rollouts: Rollouts) -> Sequence[str]:
        if self.settings.memory_key == "id":
            return rollouts.problem_ids
        return [prompt_key(question) for question in rollouts.questions]

    def _visit(self, key: str, new: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Labels and cluster sizes of a prompt's new wrong rollouts, which are then stored."""
        history = self.memory.get(key, new[:0])
        first = key not in self.visits
        self.visits[key] = self.visits.get(key, 0) + 1
        self.memory[key] = everything = np.concatenate([history, new])

        unpaid = np.full(len(new), NOT_CLUSTERED), np.zeros(len(new), dtype=np.int64)
        if not len(new) or (first and self.settings.first_visit_free):
            return unpaid
        if self.settings.assignment == "joint":
            stored = cluster(everything, self.settings)
            labels = stored[len(history) :]
        elif len(history):
            # the released code fits after storing; fitting when next needed gives the same labels
            stored = cluster(history, self.settings)
            labels = knn_vote(history, stored, new, self.settings.knn)
        else:
            return unpaid
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
