"""Memory-R and Memory-R+ (arXiv 2504.02273) as differences from GRPO.

**R1** is GRPO with outcome and format rewards. Memory-R+ adds to each rollout's reward what two
episodic memories say about it; nothing else changes.

1. An encoder Enc turns questions and responses into unit vectors. The memory of successes M^s and
   the memory of failures M^f map a question to its last L responses; each holds at most N
   questions (:mod:`paperlib.methods.episodic_memory`).
2. **Write** (eq. 2): after the rewards R of a batch are known, M^s takes the responses with
   R > tau_s, M^f those with R <= tau_f.
3. **Read** (eq. 3): B(M, q) is the union of the response sets of the K stored questions nearest to
   the question q by cosine.
4. **Exploit** (eq. 4): R_exploit = -||a - centroid(B(M^s, q))||: be like what succeeded.
5. **Explore** (eq. 5): R_explore = 1 - max over B(M^f, q) of cos(a, a_j): be unlike what failed.
   Zero during a warm-up in which M^f fills.
6. **Scale** (eq. 6): each is min-max normalised over a sliding window w of its own last values.
7. **Sum** (eq. 7): R_mem = beta_s R^_exploit + beta_e R^_explore, and GRPO maximises E[R + R_mem]
   (eq. 8): the loop sums all reward terms, so these are just two more.

**Memory-R** is R1 with :class:`Exploit`, **Memory-R+** R1 with :class:`Exploit` and
:class:`Explore`. Every choice that the paper leaves open or the released code makes differently is
a setting (:mod:`paperlib.methods.memory_r_settings`); both readings run through these equations.
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


def succeeded(outcome: np.ndarray, tau: float) -> np.ndarray:
    """Eq. 2, M^s: ``[n]`` bool, R > tau_s."""
    return outcome > tau


def failed(outcome: np.ndarray, tau: float) -> np.ndarray:
    """Eq. 2, M^f: ``[n]`` bool, R <= tau_f."""
    return outcome <= tau


def read(memory: EpisodicMemory, questions: torch.Tensor, settings: MemoryR) -> torch.Tensor:
    """Eq. 3: for each of ``[b, d]`` the rows of ``memory`` that make up B(M, q): ``[b, <= K]``."""
    return memory.nearest(questions, settings.k, settings.query_metric)


def exploit_distance(responses: torch.Tensor, centroid: torch.Tensor) -> torch.Tensor:
    """Eq. 4 without its sign: ``[n]`` distances of ``[n, d]`` to the centroid ``[d]``."""
    return (responses.double() - centroid).norm(dim=1).float()


def explore_novelty(max_cosine: torch.Tensor) -> torch.Tensor:
    """Eq. 5: ``[n]``, 1 - the largest cosine to a remembered failure; in [0, 2] up to rounding."""
    return 1 - max_cosine


def windowed_minmax(
    values: np.ndarray, steps: np.ndarray, *, window: int, unit: str, epsilon: float | None,
    at_tie: np.ndarray | float = 0.0, start: int = 0,
) -> np.ndarray:
    """Eq. 6: each of ``values [t]``, raw rewards as they came in ``steps [t]``, min-max normalised
    over the window that ends with it: ``[t - start]``; those before ``start`` only fill windows.

    A window is the last ``window`` values (unit "samples"), or all values of the last ``window``
    steps ("steps"), the current one in full. ``epsilon`` is added to max - min. None adds nothing;
    where max == min the result is ``at_tie``.
    """
    values, steps = np.asarray(values, dtype=np.float64), np.asarray(steps)
    wanted = values[start:]
    if unit == "steps":
        first = np.searchsorted(steps, steps[start:] - window, side="right")
        end = np.searchsorted(steps, steps[start:], side="right")
    else:
        end = np.arange(start + 1, len(values) + 1)
        first = np.maximum(end - window, 0)
    spans, which = np.unique(np.stack([first, end]), axis=1, return_inverse=True)
    low = np.array([values[a:b].min() for a, b in spans.T])[which]
    spread = np.array([values[a:b].max() for a, b in spans.T])[which] - low
    if epsilon is not None:
        return (wanted - low) / (spread + epsilon)
    tied = spread == 0
    at_tie = np.broadcast_to(at_tie, values.shape)[start:]
    return np.where(tied, at_tie, (wanted - low) / np.where(tied, 1.0, spread))


def weighted(scaled: np.ndarray, beta: float) -> np.ndarray:
    """Eq. 7: ``[n]``, one term's share of R_mem; the loop adds the shares to the other rewards."""
    return beta * scaled


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
        stored = batch.said & self._stores(batch.outcome)  # eq. 2
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
        compared = sorted(batch.raw)
        raw = np.array([batch.raw[row] for row in compared])
        batch.rewards[compared] = self._scale_in_window(raw, batch.step)  # eq. 6
        return weighted(batch.rewards, getattr(self.settings, f"beta_{self.name}"))  # eq. 7

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
            found = read(self.memory, batch.queries[first], self.settings)  # eq. 3
            batch.nearest.update(zip([(key, held) for key in new], found, strict=True))
        for key, mine in asking.items():
            found = self._compare(batch.nearest[key, held], batch.responses[mine])  # eq. 4 or 5
            batch.raw.update(zip(mine, found.tolist(), strict=True))

    def _scale_in_window(self, raw: np.ndarray, step: int) -> np.ndarray:
        """Let raw rewards into the window, scale them by it, drop what has left it."""
        s, start = self.settings, len(self.window_values)
        values = np.concatenate([self.window_values, raw])
        steps = np.concatenate([self.window_steps, np.full(len(raw), step)])
        scaled = self._scale(values, partial(
            windowed_minmax, steps=steps, window=s.window, unit=s.window_unit, epsilon=s.epsilon,
            start=start,
        ))  # fmt: skip
        keep = steps > step - s.window
        if s.window_unit == "samples":
            keep = slice(max(0, len(values) - s.window), None)
        self.window_values, self.window_steps = values[keep], steps[keep]
        return scaled

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
        return succeeded(outcome, self.settings.tau_success)

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
        return failed(outcome, self.settings.tau_failure)

    def _read(self, batch: Batch, rows: np.ndarray) -> None:
        s = self.settings
        past = batch.step - 1 if s.explore_warmup_unit == "steps" else len(self.memory)
        if past < s.explore_warmup:
            return
        if not len(self.memory):
            batch.rewards[rows[batch.said[rows]]] = s.explore_empty
        super()._read(batch, rows)

    def _compare(self, rows: torch.Tensor, responses: torch.Tensor) -> torch.Tensor:
        return explore_novelty(self.memory.max_cosine(rows, responses))

    def _scale(self, values: np.ndarray, minmax: Callable[..., np.ndarray]) -> np.ndarray:
        return minmax(values, at_tie=0.0)
