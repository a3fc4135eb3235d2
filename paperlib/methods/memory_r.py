"""Memory-R and Memory-R+ (arXiv 2504.02273) as differences from GRPO.

Memory-R+ adds to each rollout's reward what two episodic memories say about it: M^s of successes
and M^f of failures, each of at most N questions with their last L responses, as embeddings
(:mod:`paperlib.methods.episodic_memory`). To be near past successes is good (:class:`Exploit`), to
be near past failures is bad (:class:`Explore`); Memory-R has the first alone. GRPO maximises
E[R + R_mem] (eq. 8): the loop sums all reward terms, so these are just two more.

What the paper leaves open or the released code makes differently is a setting
(:mod:`paperlib.methods.memory_r_settings`); both readings run through these equations.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch

from paperlib.methods.embeddings import text_encoder
from paperlib.methods.episodic_memory import EpisodicMemory
from paperlib.methods.memory_r_settings import Batch, MemoryR, embed
from paperlib.methods.rollouts import Rollouts, rows_by_key


def exploit_distance(responses: torch.Tensor, centroid: torch.Tensor) -> torch.Tensor:
    """Eq. 4 without its sign: ``[n]`` distances of ``[n, d]`` to the centroid ``[d]``."""
    return (responses.double() - centroid).norm(dim=1).float()


def windowed_minmax(
    values: np.ndarray, steps: np.ndarray, *, window: int, unit: str, epsilon: float | None,
    at_tie: np.ndarray | float = 0.0,
) -> np.ndarray:
    """Eq. 6: ``[t]``, each of ``values [t]``, raw rewards as they came in ``steps [t]``, min-max
    normalised over the window that ends with it.

    A window is the last ``window`` values (unit "samples"), or all values of the last ``window``
    steps ("steps"), the current one in full. ``epsilon`` is added to max - min. None adds nothing;
    where max == min the result is ``at_tie``.
    """
    values, steps = np.asarray(values, dtype=np.float64), np.asarray(steps)
    if unit == "steps":
        first = np.searchsorted(steps, steps - window, side="right")
        end = np.searchsorted(steps, steps, side="right")
    else:
        end = np.arange(1, len(values) + 1)
        first = np.maximum(end - window, 0)
    ends, row, which = np.unique(end, return_index=True, return_inverse=True)
    windows = [values[a:b] for a, b in zip(first[row], ends, strict=True)]
    low = np.array([each.min() for each in windows])[which]
    spread = np.array([each.max() for each in windows])[which] - low
    if epsilon is not None:
        return (values - low) / (spread + epsilon)
    tied = spread == 0
    return np.where(tied, at_tie, (values - low) / np.where(tied, 1.0, spread))


# Hashed and compared by its settings alone, like every term; not frozen, because it remembers.
@dataclass(unsafe_hash=True)
class _MemoryTerm:
    """One memory, the window of its raw rewards, and what both terms do alike."""

    settings: MemoryR
    name: ClassVar[str]

    def __post_init__(self) -> None:
        self.encoder: Any = None  # has encode(texts); None: the settings' one, at the first call
        self.memory: EpisodicMemory | None = None  # made when the vectors' length is known
        self.window_values = np.zeros(0)
        self.window_steps = np.zeros(0, dtype=np.int64)

    def __call__(self, rollouts: Rollouts) -> np.ndarray:
        """Read, write and scale one batch: ``[n]`` float64, beta included."""
        batch = embed(rollouts, self.settings, self.encoder or text_encoder(self.settings.encoder))
        stored = batch.said & self._stores(batch.outcome)
        if self.memory is None:
            self.memory = self._new_memory(batch.queries.shape[1])
        rows = np.arange(len(rollouts))
        if self.settings.order == "read-then-write":
            self._read(batch, rows)
            self._write(batch, rows[stored])
        else:
            for row in rows[:, None]:  # each meets itself
                self._write(batch, row[stored[row]])
                self._read(batch, row)
        compared = ~np.isnan(batch.raw)
        batch.rewards[compared] = self._scale_in_window(batch.raw[compared], batch.step)  # eq. 6
        return getattr(self.settings, f"beta_{self.name}") * batch.rewards  # eq. 7

    def _new_memory(self, dim: int) -> EpisodicMemory:
        return EpisodicMemory(dim, self.settings.max_queries, self.settings.max_responses)

    def _write(self, batch: Batch, rows: np.ndarray) -> None:
        keys = [batch.keys[i] for i in rows]
        self.memory.write(keys, batch.queries[rows], batch.responses[rows])

    def _read(self, batch: Batch, rows: np.ndarray) -> None:
        """Eqs. 3 to 5 of these rows; one search serves all rollouts of a question. An empty memory
        tells nothing."""
        if not len(self.memory):
            return
        rows = rows[batch.said[rows]]
        places = rows_by_key([batch.keys[i] for i in rows])
        asking = {key: rows[at].tolist() for key, at in places.items()}
        held = self.memory.inserted  # a search holds until the next question comes in
        if new := [key for key in asking if (key, held) not in batch.nearest]:
            first = [asking[key][0] for key in new]
            asked, metric = batch.queries[first], self.settings.query_metric
            found = self.memory.nearest(asked, self.settings.k, metric)  # eq. 3
            batch.nearest.update(zip([(key, held) for key in new], found, strict=True))
        for key, mine in asking.items():
            found = self._compare(batch.nearest[key, held], batch.responses[mine])  # eq. 4 or 5
            batch.raw[mine] = found.numpy()

    def _scale_in_window(self, raw: np.ndarray, step: int) -> np.ndarray:
        """Let raw rewards into the window, scale them by it, drop what has left it."""
        s, start = self.settings, len(self.window_values)
        values = np.concatenate([self.window_values, raw])
        steps = np.concatenate([self.window_steps, np.full(len(raw), step)])
        scaled = self._scale(values, partial(
            windowed_minmax, steps=steps, window=s.window, unit=s.window_unit, epsilon=s.epsilon
        ))  # fmt: skip
        keep = steps > step - s.window
        if s.window_unit == "samples":
            keep = slice(max(0, len(values) - s.window), None)
        self.window_values, self.window_steps = values[keep], steps[keep]
        return scaled[start:]

    def state_dict(self) -> dict[str, Any]:
        """Memory and window as tensors and plain values; the encoder is not part of it."""
        return {
            "memory": None if self.memory is None else self.memory.state_dict(),
            "window_values": torch.from_numpy(self.window_values.copy()),
            "window_steps": torch.from_numpy(self.window_steps.copy()),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on exactly where ``state_dict`` was taken, with the same N and L."""
        self.memory = None
        if state["memory"] is not None:
            self.memory = self._new_memory(state["memory"]["dim"])
            self.memory.load_state_dict(state["memory"])
        self.window_values = state["window_values"].numpy().copy()
        self.window_steps = state["window_steps"].numpy().copy()


class Exploit(_MemoryTerm):
    """R^_exploit (eqs. 4, 6) on M^s; 0 while M^s is empty, and then nothing enters the window.

    Without an epsilon, a value whose window has no spread gets 1 - its distance (released code),
    so the first correct rollout, which meets only itself, gets exactly 1.
    """

    name: ClassVar[str] = "exploit"

    def _stores(self, outcome: np.ndarray) -> np.ndarray:
        return outcome > self.settings.tau_success  # eq. 2

    def _compare(self, rows: torch.Tensor, responses: torch.Tensor) -> torch.Tensor:
        return exploit_distance(responses, self.memory.centroid(rows))

    def _scale(self, values: np.ndarray, minmax: Callable[..., np.ndarray]) -> np.ndarray:
        if self.settings.exploit_flip == "before":
            return minmax(-values, at_tie=1 - values)
        return 1 - minmax(values, at_tie=values)


class Explore(_MemoryTerm):
    """R^_explore (eqs. 5, 6) on M^f; 0 in the warm-up, ``explore_empty`` while M^f is empty.

    In both cases nothing enters the window; writing goes on. Without an epsilon, a value whose
    window has no spread gets 0 (released code).
    """

    name: ClassVar[str] = "explore"

    def _stores(self, outcome: np.ndarray) -> np.ndarray:
        return outcome <= self.settings.tau_failure  # eq. 2

    def _read(self, batch: Batch, rows: np.ndarray) -> None:
        s = self.settings
        past = batch.step - 1 if s.explore_warmup_unit == "steps" else len(self.memory)
        if past < s.explore_warmup:
            return
        if not len(self.memory):
            batch.rewards[rows[batch.said[rows]]] = s.explore_empty
        super()._read(batch, rows)

    def _compare(self, rows: torch.Tensor, responses: torch.Tensor) -> torch.Tensor:
        return 1 - self.memory.max_cosine(rows, responses)

    def _scale(self, values: np.ndarray, minmax: Callable[..., np.ndarray]) -> np.ndarray:
        return minmax(values, at_tie=0.0)
