"""What would happen without the memory, or with more of it: a memory's reward term as a control.

A *placebo* pays each step's own rewards of a memory, dealt out anew among the rollouts of a group
that could have got them: as much reward, as unevenly spread, and no memory in it. A *dose* pays a
memory's rewards several times over, or not at all. The memory itself goes on as it was. Ours:
neither paper has either.
"""

import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from paperlib.errors import UserError
from paperlib.methods.meds import ClusterPenalty
from paperlib.methods.memory_r import Exploit, Explore
from paperlib.methods.rollouts import Rollouts, rows_by_key

Memory = ClusterPenalty | Exploit | Explore


@dataclass(unsafe_hash=True)  # by its settings, like the term in it
class Control:
    """The rewards of ``term`` times ``dose``; ``placebo``: permuted within each group, those of
    :class:`ClusterPenalty` among the wrong rollouts, others among all. ``contrast``: less their
    mean among those, so that a dose changes no group's mean."""

    name: str  # the term's, under which its rewards are logged
    term: Memory
    dose: float = 1.0
    placebo: bool = False
    contrast: bool = False

    def __post_init__(self) -> None:
        if not np.isfinite(self.dose) or self.dose < 0:
            raise UserError(f"dose is {self.dose}; it must be a finite number of at least 0")
        if self.name != self.term.name:
            raise UserError(f"name is {self.name!r}; it must be its term's, {self.term.name!r}")

    @classmethod
    def of(cls, term: Memory, **settings: Any) -> "Control":
        """The control of a term, named as it is."""
        return cls(term.name, term, **settings)

    @property
    def needs_layer_logits(self) -> bool:
        return getattr(self.term, "needs_layer_logits", False)

    @property
    def settings(self) -> Any:
        return self.term.settings

    def __call__(self, rollouts: Rollouts) -> np.ndarray:
        """Rewards ``[n]``."""
        values = np.array(self.term(rollouts), dtype=np.float64)
        eligible = np.ones(len(rollouts), dtype=bool)
        if isinstance(self.term, ClusterPenalty):
            eligible = np.asarray(rollouts.accuracy) < 0.5
        for key, rows in rows_by_key(rollouts.problem_ids).items():
            rows = rows[eligible[rows]]
            if self.placebo:  # drawn from step and problem, so that a resumed run deals the same
                rng = np.random.default_rng([rollouts.step, zlib.crc32(key.encode())])
                values[rows] = values[rng.permutation(rows)]
            if self.contrast and len(rows):
                values[rows] -= values[rows].mean()
        return self.dose * values

    def state_dict(self) -> dict[str, Any]:
        """The memory's."""
        return self.term.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from :meth:`state_dict`."""
        self.term.load_state_dict(state)
