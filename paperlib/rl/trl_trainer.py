"""The subclass of TRL's ``GRPOTrainer`` behind :mod:`paperlib.rl.trl_engine`, which describes it.

Every overridden method is listed in :data:`OVERRIDDEN`; a test holds their signatures, and the
order in which TRL calls them, against the version that is installed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate.utils import gather_object
from torch import Tensor
from torch.optim.lr_scheduler import LambdaLR
from trl import GRPOTrainer
from trl.trainer.utils import RepeatSampler

from paperlib.methods.rollouts import RewardTerm, Rollouts, call_terms
from paperlib.rl.checkpoint import (
    dropped_unless_whole,
    load_state,
    restore_rng,
    rng_state,
    save_state,
    seal,
)  # fmt: skip
from paperlib.rl.config import RunConfig
from paperlib.rl.logs import RunLog, rollout_metrics, write_rollouts
from paperlib.rl.objective import learning_rate_factor
from paperlib.rl.train import advantages_of, restore_terms, seed_everything
from paperlib.rl.trl_batches import COLUMNS, deal, keep_groups
from paperlib.rl.trl_layers import AnswerLogits
from paperlib.rl.trl_settings import oversampling
from paperlib.rl.trl_steps import StepEnd, StepMeter
from paperlib.tasks.grading import grade_all
from paperlib.tasks.prompts import build_prompt
from paperlib.tasks.symbolic import failures as grading_failures

# in the order in which a step calls them
OVERRIDDEN = (
    "get_train_dataloader", "_get_train_sampler", "get_decay_parameter_names", "create_scheduler",
    "_load_optimizer_and_scheduler", "_prepare_inputs", "_generate_and_score_completions",
    "_generate", "_tokenize_prompts", "_get_per_token_logps_and_entropies", "_calculate_rewards",
    "_compute_loss", "_clip_grad_norm", "_save_checkpoint", "create_model_card",
)  # fmt: skip


def raw_accuracy(
    prompts: list[str], completions: list[str], answer: list[str], **_: Any
) -> list[float]:
    """The one reward function TRL knows: 1 for a right final answer. In training, its column is
    filled anew with what the reward terms say."""
    return [float(right) for right in grade_all(completions, answer, questions=prompts)]


class TermsTrainer(GRPOTrainer):
    """``GRPOTrainer`` with reward terms in a run folder; ``trainer`` goes to TRL.

    Args:
        problems: number of problems in the data set, for the metric "epoch".
    """

    def __init__(
        self, config: RunConfig, terms: list[RewardTerm], folder: Path, problems: int,
        **trainer: Any,
    ) -> None:
        self.config, self.terms, self.folder, self.problems = config, terms, folder, problems
        self.meter = StepMeter()  # of the step at hand
        self.empty_steps, self.earlier_seconds, self.began = 0, 0.0, time.time()
        self.open_log: Callable[[int], RunLog] | None = None  # of the last step that is done
        self.log_file: RunLog | None = None
        self.asking = next((t for t in terms if getattr(t, "needs_layer_logits", False)), None)
        super().__init__(reward_funcs=raw_accuracy, **trainer)
        self.add_callback(StepEnd(self))

    @property
    def step_in_work(self) -> int:
        """The generation step that is sampled or trained on, from 1."""
        return self.state.global_step // self.config.mini_batches + 1

    # -- data and optimiser --------------------------------------------------------------------

    def get_train_dataloader(self):
        """TRL's, with ``oversampling`` times the prompts for the same number of updates."""
        return self._get_dataloader(
            dataset=self.train_dataset,
            description="Training",
            batch_size=self._train_batch_size * self.args.steps_per_generation
            * oversampling(self.config),
            sampler_fn=self._get_train_sampler,
            is_training=True,
        )  # fmt: skip

    def _get_train_sampler(self, dataset=None):
        return RepeatSampler(
            data_source=self.train_dataset if dataset is None else dataset,
            mini_repeat_count=self.num_generations,
            batch_size=self.config.prompts_per_step * oversampling(self.config),
            repeat_count=self.args.steps_per_generation,
            shuffle=False,
        )

    def get_decay_parameter_names(self, model):
        """All of them, as in our loop; transformers leaves out norms and biases."""
        return [name for name, _ in model.named_parameters()]

    def create_scheduler(self, num_training_steps, optimizer=None):
        """Our schedule, which moves once a generation step and not once an update."""
        if self.lr_scheduler is None:
            config = self.config
            self.lr_scheduler = LambdaLR(
                self.optimizer if optimizer is None else optimizer,
                lambda update: learning_rate_factor(
                    update // config.mini_batches, config.max_steps, config.warmup_steps,
                    config.lr_scheduler_type,
                ),
            )
            self._created_lr_scheduler = True
        return self.lr_scheduler

    # -- rollouts ------------------------------------------------------------------------------

    def _tokenize_prompts(self, prompts):
        """The data set's prompts are bare questions: build_prompt makes our loop's tokens."""
        ids = {q: build_prompt(self.processing_class, q, self.config.prompt) for q in set(prompts)}
        return [ids[question] for question in prompts], None, {}

    def _generate(self, prompts):
        out = super()._generate(prompts)
        if self.asking and self.model.training:
            prompt_ids, completion_ids, _, completions, *_ = out
            self._answers = AnswerLogits(
                self, self.asking.settings, prompt_ids, completion_ids, completions
            )
        return out

    def _prepare_inputs(self, generation_batch):
        if not self.model.training:
            return super()._prepare_inputs(generation_batch)
        slot = self._step % self.args.steps_per_generation
        if slot == 0:  # without TRL's shuffle: mini-batches are whole groups, as in our loop
            self.meter = StepMeter()
            rows = self._generate_and_score_completions(generation_batch)
            self._buffered_inputs, self._real_rows = deal(
                self.config, rows, self._kept, self._advantages,
                micro_batch=self.args.per_device_train_batch_size,
                process=self.accelerator.process_index, processes=self.accelerator.num_processes,
            )
            self.meter.begin_updates()
        device = self.accelerator.device
        return {key: value.to(device) for key, value in self._buffered_inputs[slot].items()}

    def _generate_and_score_completions(self, inputs):
        """TRL's rows of this process, or in training those of all, padded alike, on the CPU."""
        out = super()._generate_and_score_completions(inputs)
        if not self.model.training:
            return out
        rows = {}
        for name, left in COLUMNS.items():
            if out.get(name) is not None:
                padded = self.accelerator.pad_across_processes(out[name], dim=1, pad_first=left)
                rows[name] = self.accelerator.gather(padded).cpu()
        return rows

    # -- rewards -------------------------------------------------------------------------------

    def _get_per_token_logps_and_entropies(
        self, model, input_ids, attention_mask, logits_to_keep, batch_size=None, **kwargs
    ):
        """Where TRL computes the sampling policy's logps, the layer logits come with them."""
        compute = super()._get_per_token_logps_and_entropies
        policy = model is self.model and self.model.training and not torch.is_grad_enabled()
        if self.asking and policy:
            compute = partial(self._answers.read_along, compute)
        return compute(
            model, input_ids, attention_mask, logits_to_keep, batch_size=batch_size, **kwargs
        )

    def _calculate_rewards(self, inputs, prompts, completions, completion_ids_list):
        """The gathered column of raw accuracies; in training, of the summed reward terms.

        Every process sees all rollouts, and calls the terms with the same ones.
        """
        failures = grading_failures.total()
        column = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        if not self.model.training:
            return column
        began = time.perf_counter()
        failures = sum(gather_object([grading_failures.total() - failures]))
        first = self.accelerator.process_index * len(inputs)
        features = [None] * len(inputs)
        if self.asking:
            features = self._answers.read(column[first : first + len(inputs), 0])
        ends = set(self.eos_token_ids)
        rows = gather_object([
            (x["id"], x["prompt"], x["answer"], text, len(ids),
             not ids or ids[-1] not in ends, logits)
            for x, text, ids, logits in zip(
                inputs, completions, completion_ids_list, features, strict=True)
        ])
        accuracy = column[:, 0].double().cpu()
        self._kept, counts = keep_groups(self.config, accuracy)
        self.meter.metrics |= {**counts, "grading_failures": failures}
        self._advantages = torch.zeros(len(rows))
        if len(self._kept):
            kept = self._kept.tolist()
            rollouts = self._rollouts([rows[i] for i in kept], accuracy[self._kept].numpy())
            values, rewards, advantages = self._call_terms(rollouts)
            self._advantages[self._kept] = advantages
            column[self._kept.to(column.device), 0] = torch.tensor(rewards).to(column)
            if self.accelerator.is_main_process:
                write_rollouts(self.folder, rollouts, values, rewards, advantages.numpy())
        self.meter.metrics["seconds/terms"] = time.perf_counter() - began
        return column

    def _rollouts(self, rows: list[tuple], accuracy: np.ndarray) -> Rollouts:
        ids, questions, golds, texts, lengths, truncated, logits = zip(*rows, strict=True)
        return Rollouts(
            step=self.step_in_work, num_generations=self.config.num_generations,
            problem_ids=list(ids), questions=list(questions), golds=list(golds),
            completions=list(texts), lengths=np.array(lengths), truncated=np.array(truncated),
            accuracy=accuracy, max_completion_length=self.config.max_completion_length,
            layer_logits=np.stack(logits) if self.asking else None,
        )

    def _call_terms(self, rollouts: Rollouts) -> tuple[dict[str, np.ndarray], np.ndarray, Tensor]:
        """Each term's rewards, their sums and the advantages. A term that draws random numbers
        draws the same ones in every process."""
        before = rng_state(self.accelerator.device)
        seed_everything(1_000_003 * self.config.seed + rollouts.step)
        values, rewards = call_terms(self.terms, rollouts)
        restore_rng(before, self.accelerator.device)
        advantages, flat = advantages_of(self.config, rewards, rollouts.accuracy)
        self.meter.metrics |= rollout_metrics(rollouts, values, rewards, flat)
        return values, rewards, advantages

    # -- updates -------------------------------------------------------------------------------

    def _compute_loss(self, model, inputs):
        loss = super()._compute_loss(model, inputs)
        if self.model.training:
            self.meter.add(loss.detach(), float(inputs["tokens"]), self._metrics["train"])
        return loss

    def _clip_grad_norm(self, model):
        """Leave out the update, as our loop does, when the gradient is not finite or nothing is
        left to learn from: without gradients AdamW changes neither weights nor moments."""
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
        step = self.state.global_step // self.config.mini_batches
        self.empty_steps = 0 if len(self._kept) else self.empty_steps + 1
        if len(self._kept):
            self.meter.end_updates(lambda loss: self.accelerator.gather(loss[None]).mean())
        self._metrics["train"].clear()
        drawn = step * self.config.prompts_per_step * oversampling(self.config)
        rate = self.config.learning_rate * learning_rate_factor(
            step - 1, self.config.max_steps, self.config.warmup_steps,
            self.config.lr_scheduler_type,
        )
        return {
            "step": step, "epoch": drawn / self.problems, "learning_rate": rate,
            **self.meter.rounded(),
        }

    # -- checkpoints ---------------------------------------------------------------------------

    def create_model_card(self, *args, **kwargs):
        """None: a checkpoint of a run is no model to publish."""

    def _save_checkpoint(self, model, trial):
        """TRL's checkpoint with our state, under our name, whole or not there."""
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

    def _load_optimizer_and_scheduler(self, checkpoint):
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is None:
            return
        state = load_state(Path(checkpoint))
        self.empty_steps, self.earlier_seconds = state["empty_steps"], state["seconds"]
        restore_terms(self.terms, state["terms"])

    def seconds(self) -> float:
        """Wall time of the run so far, interruptions left out."""
        return self.earlier_seconds + time.time() - self.began
