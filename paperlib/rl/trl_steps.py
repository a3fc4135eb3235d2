"""Generation steps inside TRL's ``GRPOTrainer``, which knows updates only: data order, learning
rate, gradients, metrics, checkpoints. :mod:`paperlib.rl.trl_trainer` adds rollouts and rewards."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.optim.lr_scheduler import LambdaLR
from transformers import TrainerCallback
from trl import GRPOTrainer
from trl.trainer.utils import RepeatSampler

from paperlib.methods.rollouts import RewardTerm
from paperlib.rl.checkpoint import dropped_unless_whole, save_state, seal
from paperlib.rl.config import RunConfig
from paperlib.rl.logs import RunLog
from paperlib.rl.train import rate_factor, restore_terms
from paperlib.rl.trl_settings import oversampling

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
        self.losses: list[Tensor] = []  # one a micro-batch
        self._sums: Counter[str] = Counter()  # of token means, weighted by tokens
        self._began = time.perf_counter()

    def lap(self, name: str) -> None:
        """The time since the last lap was a part's of the step."""
        now = time.perf_counter()
        self.metrics[f"seconds/{name}"] = round(now - self._began, 4)
        self._began = now

    def add(self, loss: Tensor, tokens: float, found: Mapping[str, list[float]]) -> None:
        """One micro-batch: its loss, its tokens in all processes, and TRL's metrics so far."""
        self.losses.append(loss)
        self._sums["tokens"] += tokens
        for name, key in TOKEN_MEANS.items():
            if found.get(key):
                self._sums[name] += tokens * found[key][-1]

    def end_updates(self, losses: float) -> None:
        """All updates of the step are made; ``losses`` is their sum over all processes."""
        tokens, updates = max(self._sums["tokens"], 1), len(self.norms)
        self.metrics |= {
            "loss": losses / max(updates, 1), "grad_norm": sum(self.norms) / max(updates, 1),
            **{name: self._sums[name] / tokens for name in TOKEN_MEANS},
            "updates": updates, "skipped_updates": self.skipped,
        }  # fmt: skip
        self.lap("update")


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


class StepTrainer(GRPOTrainer):
    """``GRPOTrainer`` in a run folder; ``trainer`` goes to TRL, and ``problems``, the number of
    problems in the data set, into the metric "epoch"."""

    def __init__(
        self, config: RunConfig, terms: list[RewardTerm], folder: Path, problems: int,
        **trainer: Any,
    ) -> None:
        self.config, self.terms, self.folder, self.problems = config, terms, folder, problems
        self.meter = StepMeter()  # of the step at hand
        self.empty_steps, self.earlier_seconds, self.began = 0, 0.0, time.time()
        self.open_log: Callable[[int], RunLog] | None = None  # of the last step that is done
        self.log_file: RunLog | None = None
        super().__init__(**trainer)
        self.add_callback(StepEnd(self))

    @property
    def step_in_work(self) -> int:
        """The generation step that is sampled or trained on, from 1."""
        return self.state.global_step // self.config.mini_batches + 1

    def seconds(self) -> float:
        """Wall time of the run so far, interruptions left out."""
        return self.earlier_seconds + time.time() - self.began

    def get_train_dataloader(self):
        """The only change is ``oversampling`` times the prompts for the same number of updates."""
        times, per_step = oversampling(self.config), self.args.steps_per_generation
        return self._get_dataloader(
            dataset=self.train_dataset,
            description="Training",
            batch_size=self._train_batch_size * per_step * times,
            sampler_fn=lambda dataset: RepeatSampler(
                data_source=dataset, mini_repeat_count=self.num_generations,
                batch_size=self.config.prompts_per_step * times, repeat_count=per_step,
                shuffle=False,
            ),
            is_training=True,
        )  # fmt: skip

    def get_decay_parameter_names(self, model):
        """The only change is that norms and biases decay too, as in our loop."""
        return [name for name, _ in model.named_parameters()]

    def create_scheduler(self, num_training_steps, optimizer=None):
        """The only change is that the rate moves once a generation step and not once an update."""
        if self.lr_scheduler is None:
            config = self.config
            self.lr_scheduler = LambdaLR(
                self.optimizer if optimizer is None else optimizer,
                lambda update: rate_factor(config, update // config.mini_batches + 1),
            )
            self._created_lr_scheduler = True
        return self.lr_scheduler

    def _compute_loss(self, model, inputs):
        """The only change is that the meter sees the loss."""
        loss = super()._compute_loss(model, inputs)
        if self.model.training:
            self.meter.add(loss.detach(), float(inputs["tokens"]), self._metrics["train"])
        return loss

    def _clip_grad_norm(self, model):
        """The only change is that an update is left out, as in our loop, when the gradient is not
        finite or nothing is left to learn from: without gradients AdamW changes neither weights nor
        moments."""
        norm = super()._clip_grad_norm(model)
        if self.is_deepspeed_enabled:  # the update is made already, with gradient 0 if need be
            self.meter.norms.append(float("nan") if norm is None else float(norm))
            return norm
        window = (self._step - 1) % self.args.steps_per_generation
        rows = self._real_rows[window // self.args.gradient_accumulation_steps]
        if rows and np.isfinite(float(norm)):
            self.meter.norms.append(float(norm))
        else:
            self.meter.skipped += bool(rows)
            model.zero_grad(set_to_none=True)
        return norm

    def end_step(self) -> dict[str, float]:
        """The metrics of the generation step that was trained on, in :mod:`rl.logs`'s names."""
        config, step = self.config, self.step_in_work - 1
        self.empty_steps = 0 if len(self._kept) else self.empty_steps + 1
        if len(self._kept):
            loss = torch.stack(self.meter.losses).sum()
            self.meter.end_updates(float(self.accelerator.gather(loss[None]).mean()))
        self._metrics["train"].clear()
        return {
            "step": step,
            "epoch": step * config.prompts_per_step * oversampling(config) / self.problems,
            "learning_rate": config.learning_rate * rate_factor(config, step),
            **self.meter.metrics,
        }

    def create_model_card(self, *args, **kwargs):
        """The only change is that there is none: a checkpoint of a run is no model to publish."""

    def _save_checkpoint(self, model, trial):
        """The only change is that our state goes in, under our name, whole or not there."""
        step = self.state.global_step // self.config.mini_batches
        scratch = Path(self.args.output_dir) / f"checkpoint-{self.state.global_step}"
        terms = {t.name: t.state_dict() for t in self.terms if hasattr(t, "state_dict")}
        with dropped_unless_whole(scratch):
            super()._save_checkpoint(model, trial)
            self.accelerator.wait_for_everyone()
            if self.args.should_save:
                save_state(scratch, {
                    "step": step, "empty_steps": self.empty_steps, "seconds": self.seconds(),
                    "terms": terms,
                })
                seal(self.folder, scratch, step)
        self.accelerator.wait_for_everyone()

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from what :meth:`_save_checkpoint` put into a checkpoint."""
        self.empty_steps, self.earlier_seconds = state["empty_steps"], state["seconds"]
        restore_terms(self.terms, state["terms"])
