"""The metrics of a generation step inside a TRL trainer, which knows updates only."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from transformers import TrainerCallback

TOKEN_MEANS = {  # our name of a metric: TRL's
    "entropy": "entropy", "kl": "kl", "clip_low": "clip_ratio/low_mean",
    "clip_high": "clip_ratio/high_mean",
}  # fmt: skip


class StepMeter:
    """Collects the metrics of one generation step, in :mod:`paperlib.rl.logs`'s names."""

    def __init__(self) -> None:
        self.metrics: dict[str, float] = {}
        self.norms: list[float] = []  # of the gradient, one an update that was made
        self.skipped = 0  # updates
        self._losses: list[Tensor] = []  # one a micro-batch
        self._sums: Counter[str] = Counter()  # of token means, weighted by tokens
        self._began = time.perf_counter()

    def begin_updates(self) -> None:
        """The rollouts are there, with their rewards."""
        now = time.perf_counter()
        self.metrics["seconds/sample"] = (
            now - self._began - self.metrics.get("seconds/terms", 0.0)
        )
        self._began = now

    def add(self, loss: Tensor, tokens: float, found: Mapping[str, list[float]]) -> None:
        """One micro-batch: its loss, its tokens in all processes, and TRL's metrics so far."""
        self._losses.append(loss)
        self._sums["tokens"] += tokens
        for name, key in TOKEN_MEANS.items():
            if found.get(key):
                self._sums[name] += tokens * found[key][-1]

    def end_updates(self, mean_of_processes: Callable[[Tensor], Tensor]) -> None:
        """All updates of the step are made."""
        losses = float(mean_of_processes(torch.stack(self._losses).sum()))
        tokens, updates = max(self._sums["tokens"], 1), len(self.norms)
        self.metrics |= {
            "loss": losses / max(updates, 1), "grad_norm": sum(self.norms) / max(updates, 1),
            **{name: self._sums[name] / tokens for name in TOKEN_MEANS},
            "updates": updates, "skipped_updates": self.skipped,
            "seconds/update": time.perf_counter() - self._began,
        }  # fmt: skip

    def rounded(self) -> dict[str, float]:
        """The metrics, with seconds to 0.1 ms."""
        return {
            name: round(value, 4) if name.startswith("seconds/") else value
            for name, value in self.metrics.items()
        }


class StepEnd(TrainerCallback):
    """At the last update of a generation step: write its metrics, and end a run that has nothing
    to learn from."""

    def __init__(self, trainer: Any) -> None:
        self.trainer = trainer

    def on_train_begin(self, args, state, control, **kwargs):
        self.trainer.began = time.time()
        if self.trainer.open_log:
            self.trainer.log_file = self.trainer.open_log(self.trainer.step_in_work - 1)

    def on_step_end(self, args, state, control, **kwargs):
        trainer = self.trainer
        if state.global_step % trainer.config.mini_batches:
            return
        metrics = trainer.end_step()
        if trainer.log_file:
            trainer.log_file.step(metrics)
        if trainer.empty_steps == trainer.config.max_empty_steps:
            control.should_save = control.should_training_stop = True
