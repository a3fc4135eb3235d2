"""The subclass of TRL's ``GRPOTrainer`` behind :mod:`paperlib.rl.trl_engine`, which describes it.

Each overridden method says what it changes; a test holds their signatures, and the order in which
TRL calls them, against the version that is installed.
"""

import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate.utils import gather_object
from torch import Tensor
from transformers import Trainer, TrainerCallback
from trl import GRPOTrainer

from paperlib.methods.rollouts import RewardTerm, call_terms
from paperlib.rl.checkpoint import dropped_unless_whole, restore_rng, rng_state, save_state, seal
from paperlib.rl.collect import make_rollouts
from paperlib.rl.config import RunConfig
from paperlib.rl.logs import RunLog, rollout_metrics, write_rollouts
from paperlib.rl.train import advantages_of, rate_factor, seed_everything, timed
from paperlib.rl.trl_rollouts import deal, gathered, graded, keep_groups
from paperlib.tasks.data import Problem
from paperlib.tasks.prompts import build_prompt
from paperlib.tasks.symbolic import failures as grading_failures

TOKEN_MEANS = {  # our name of a metric: TRL's
    "entropy": "entropy", "kl": "kl", "clip_low": "clip_ratio/low_mean",
    "clip_high": "clip_ratio/high_mean",
}  # fmt: skip


class StepCallback(TrainerCallback):
    """What our loop does around a generation step, of which TRL knows the updates only: set the
    learning rate, write the metrics, end a run that has nothing to learn from."""

    def __init__(self, trainer: "TermsTrainer") -> None:
        self.trainer = trainer

    def on_step_begin(self, args, state, control, optimizer, **kwargs):
        config = self.trainer.config
        for parameters in optimizer.param_groups:
            parameters["lr"] = config.learning_rate * rate_factor(config, self.trainer.step_in_work)

    def on_step_end(self, args, state, control, **kwargs):
        trainer = self.trainer
        if state.global_step % trainer.config.mini_batches == 0:
            metrics = trainer.end_step()
            if trainer.run_log:
                trainer.run_log.step(metrics)
            if trainer.empty_steps == trainer.config.max_empty_steps:
                control.should_save = control.should_training_stop = True


class TermsTrainer(GRPOTrainer):
    """``GRPOTrainer`` with reward terms, memories and dynamic sampling, in a run folder;
    ``trainer`` goes to TRL, and ``problems``, the number of problems, into the metric "epoch"."""

    def __init__(
        self, config: RunConfig, terms: list[RewardTerm], folder: Path, problems: int,
        **trainer: Any,
    ) -> None:
        self.config, self.terms, self.folder, self.problems = config, terms, folder, problems
        self.asking = next((t for t in terms if getattr(t, "needs_layer_logits", False)), None)
        self.run_log: RunLog | None = None
        self.began, self.empty_steps = time.time(), 0
        self.losses: list[Tensor] = []
        super().__init__(reward_funcs=self.grade, callbacks=[StepCallback(self)], **trainer)

    @property
    def step_in_work(self) -> int:
        """The generation step that is sampled or trained on, from 1."""
        return self.state.global_step // self.config.mini_batches + 1

    def get_decay_parameter_names(self, model):
        """The only change is that norms and biases decay too, as in our loop."""
        return [name for name, _ in model.named_parameters()]

    def _prepare_inputs(self, generation_batch):
        """The only change is that training has generation steps of our own, where TRL shuffles
        its batch."""
        if not self.model.training:
            return super()._prepare_inputs(generation_batch)
        slot = self._step % self.args.steps_per_generation
        if slot == 0:
            self.collect()
        device = self.accelerator.device
        return {name: value.to(device) for name, value in self.micro_batches[slot].items()}

    def collect(self) -> None:
        """Sample, grade and reward a generation step, and deal out its rows."""
        # of the step: losses of its micro-batches, norms of the gradient in its updates
        self.metrics, self.losses, self.norms, self.skipped = {}, [], [], 0
        failures, machine = grading_failures.total(), self.accelerator
        with timed(self.metrics, "sample"):
            found = self._generate_and_score_completions(self.prompts())
        failures = gather_object([grading_failures.total() - failures])
        self.metrics["grading_failures"] = sum(failures)
        with timed(self.metrics, "terms"):
            advantages = self.reward()
        self.micro_batches, self.real_rows = deal(
            self.config, gathered(machine, found), self.kept, advantages,
            micro_batch=self.args.per_device_train_batch_size,
            process=machine.process_index, processes=machine.num_processes,
        )
        self.update_began = time.perf_counter()

    def prompts(self) -> list[dict[str, str]]:
        """The data set's row of each completion that this process samples in the step."""
        count = self.config.prompts_per_step * self.config.oversampling
        first = (self.step_in_work - 1) * count
        problems = self.train_dataset.select(range(first, first + count)).to_list()
        rows = [row for row in problems for _ in range(self.num_generations)]
        share = len(rows) // self.accelerator.num_processes
        return rows[self.accelerator.process_index * share :][:share]

    def _tokenize_prompts(self, prompts):
        """The only change is that a prompt is a bare question, made our loop's by build_prompt."""
        ids = {q: build_prompt(self.processing_class, q, self.config.prompt) for q in set(prompts)}
        return [ids[question] for question in prompts], None, {}

    def grade(self, prompts, completions, completion_ids, id, answer, **_) -> list[float]:
        """The one reward function TRL knows: 1 for a right final answer. What TRL makes of it is
        not used in training, but what :meth:`reward` does."""
        problems = list(map(Problem, id, prompts, answer))
        asking = self.asking if self.model.training else None
        self.sampled = graded(self, prompts, completion_ids, problems, asking)
        return [row[4] for row in self.sampled]

    def reward(self) -> Tensor:
        """Choose the rows to train on and call the reward terms, in each process with the same
        rollouts, of all: advantages ``[n]``."""
        rows = gather_object(self.sampled)
        accuracy = torch.tensor([row[4] for row in rows], dtype=torch.float64)
        self.kept, counts = keep_groups(self.config, accuracy)
        self.metrics |= counts
        advantages = torch.zeros(len(rows))
        if not self.kept:
            return advantages
        rollouts = make_rollouts(
            self.step_in_work, self.config.num_generations, self.config.max_completion_length,
            *zip(*(rows[i] for i in self.kept), strict=True),
        )
        # a term that draws random numbers draws the same ones in every process
        before = rng_state(self.accelerator.device)
        seed_everything(1_000_003 * self.config.seed + rollouts.step)
        values, rewards = call_terms(self.terms, rollouts)
        restore_rng(before, self.accelerator.device)
        credit, flat = advantages_of(self.config, rewards, rollouts.accuracy)
        self.metrics |= rollout_metrics(rollouts, values, rewards, flat)
        if self.accelerator.is_main_process:
            write_rollouts(self.folder, rollouts, values, rewards, credit.numpy())
        advantages[self.kept] = credit
        return advantages

    def _compute_loss(self, model, inputs):
        """The only change is that the loss is kept for the metrics."""
        loss = super()._compute_loss(model, inputs)
        self.losses.append(loss.detach())
        return loss

    def _clip_grad_norm(self, model):
        """The only change is that an update is left out when the gradient is not finite or nothing
        is left to learn from: without gradients AdamW changes neither weights nor moments."""
        norm = super()._clip_grad_norm(model)
        value = float("nan") if norm is None else float(norm)
        rows = self.real_rows[self.state.global_step % self.config.mini_batches]
        # DeepSpeed has made the update already, with gradient 0 if need be
        if self.is_deepspeed_enabled or (rows and np.isfinite(value)):
            self.norms.append(value)
        else:
            self.skipped += bool(rows)
            model.zero_grad(set_to_none=True)
        return norm

    def end_step(self) -> dict[str, float]:
        """The metrics of the generation step that was trained on, in :mod:`rl.logs`'s names."""
        config, step, found = self.config, self.step_in_work - 1, self._metrics["train"]
        self.empty_steps = 0 if self.kept else self.empty_steps + 1
        if self.kept:
            updates = max(len(self.norms), 1)
            loss = self.accelerator.gather(torch.stack(self.losses).sum()[None]).mean()
            self.metrics |= {
                "loss": float(loss) / updates, "grad_norm": sum(self.norms) / updates,
                "updates": len(self.norms), "skipped_updates": self.skipped,
                "seconds/update": round(time.perf_counter() - self.update_began, 4),
            }  # fmt: skip
            tokens = [float(batch["tokens"]) for batch in self.micro_batches]
            for name, key in TOKEN_MEANS.items():
                sums = [n * value for n, value in zip(tokens, found[key], strict=False)]
                self.metrics[name] = sum(sums) / max(sum(tokens), 1)
        found.clear()
        return {
            "step": step,
            "epoch": step * config.prompts_per_step * config.oversampling / self.problems,
            "learning_rate": config.learning_rate * rate_factor(config, step),
            **self.metrics,
        }

    def _save_checkpoint(self, model, trial):
        """The only change is that our state goes in, under our name, whole or not there; and no
        model card, which GRPOTrainer adds."""
        step = self.state.global_step // self.config.mini_batches
        scratch = Path(self.args.output_dir) / f"checkpoint-{self.state.global_step}"
        memories = {t.name: t.state_dict() for t in self.terms if hasattr(t, "state_dict")}
        with dropped_unless_whole(scratch):
            Trainer._save_checkpoint(self, model, trial)
            self.accelerator.wait_for_everyone()
            if self.args.should_save:
                save_state(scratch, {
                    "step": step, "empty_steps": self.empty_steps, "terms": memories,
                    "seconds": time.time() - self.began,
                })
                seal(self.folder, scratch, step)
        self.accelerator.wait_for_everyone()
