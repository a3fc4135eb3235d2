"""The subclass of TRL's ``GRPOTrainer`` behind :mod:`paperlib.rl.trl_engine`, which describes it:
here rollouts and rewards, in :mod:`paperlib.rl.trl_steps` updates and checkpoints.

Each overridden method says what it changes; a test holds their signatures, and the order in which
TRL calls them, against the version that is installed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate.utils import gather_object
from torch import Tensor

from paperlib.methods.rollouts import RewardTerm, call_terms
from paperlib.rl.checkpoint import restore_rng, rng_state
from paperlib.rl.collect import make_rollouts
from paperlib.rl.config import RunConfig
from paperlib.rl.logs import rollout_metrics, write_rollouts
from paperlib.rl.train import advantages_of, seed_everything
from paperlib.rl.trl_batches import COLUMNS, deal, keep_groups
from paperlib.rl.trl_layers import read_along, wrong_answers
from paperlib.rl.trl_steps import StepMeter, StepTrainer
from paperlib.tasks.data import Problem
from paperlib.tasks.grading import grade_all
from paperlib.tasks.prompts import build_prompt
from paperlib.tasks.symbolic import failures as grading_failures

# in the order in which a step calls them
OVERRIDDEN = (
    "get_train_dataloader", "get_decay_parameter_names", "create_scheduler", "_prepare_inputs",
    "_generate_and_score_completions", "_generate", "_tokenize_prompts",
    "_get_per_token_logps_and_entropies", "_calculate_rewards", "_compute_loss",
    "_clip_grad_norm", "_save_checkpoint", "create_model_card",
)  # fmt: skip


def raw_accuracy(
    prompts: list[str], completions: list[str], answer: list[str], **_: Any
) -> list[float]:
    """The one reward function TRL knows: 1 for a right final answer. In training, its column is
    filled anew with what the reward terms say."""
    return [float(right) for right in grade_all(completions, answer, questions=prompts)]


class TermsTrainer(StepTrainer):
    """Reward terms, memories and dynamic sampling, beside what :class:`StepTrainer` does."""

    def __init__(
        self, config: RunConfig, terms: list[RewardTerm], folder: Path, problems: int,
        **trainer: Any,
    ) -> None:
        self.asking = next((t for t in terms if getattr(t, "needs_layer_logits", False)), None)
        super().__init__(config, terms, folder, problems, reward_funcs=raw_accuracy, **trainer)

    def _tokenize_prompts(self, prompts):
        """The only change is that a prompt is a bare question, made our loop's by build_prompt."""
        ids = {q: build_prompt(self.processing_class, q, self.config.prompt) for q in set(prompts)}
        return [ids[question] for question in prompts], None, {}

    def _generate(self, prompts):
        """The only change is that the completions are kept for those who ask for layer logits."""
        out = super()._generate(prompts)
        prompt_ids, completion_ids, _, texts, *_ = out
        self._sampled, self._layer_logits = (prompt_ids, completion_ids, texts), None
        return out

    def _prepare_inputs(self, generation_batch):
        """The only change is that :func:`deal` cuts a generation batch into micro-batches, where
        TRL shuffles: mini-batches are whole groups."""
        if not self.model.training:
            return super()._prepare_inputs(generation_batch)
        slot = self._step % self.args.steps_per_generation
        if slot == 0:
            self.meter = StepMeter()
            rows = self._generate_and_score_completions(generation_batch)
            self._buffered_inputs, self._real_rows = deal(
                self.config, rows, self._kept, self._advantages,
                micro_batch=self.args.per_device_train_batch_size,
                process=self.accelerator.process_index, processes=self.accelerator.num_processes,
            )
        device = self.accelerator.device
        return {key: value.to(device) for key, value in self._buffered_inputs[slot].items()}

    def _generate_and_score_completions(self, inputs):
        """The only change is that in training the rows of all processes are returned, padded
        alike, on the CPU."""
        out = super()._generate_and_score_completions(inputs)
        if not self.model.training:
            return out
        rows = {}
        for name, left in COLUMNS.items():
            if out.get(name) is not None:
                padded = self.accelerator.pad_across_processes(out[name], dim=1, pad_first=left)
                rows[name] = self.accelerator.gather(padded).cpu()
        return rows

    def _get_per_token_logps_and_entropies(
        self, model, input_ids, attention_mask, logits_to_keep, batch_size=None, **kwargs
    ):
        """The only change is that layer logits come with the sampling policy's logps."""
        compute = super()._get_per_token_logps_and_entropies
        policy = model is self.model and self.model.training and not torch.is_grad_enabled()
        inputs = (input_ids, attention_mask, logits_to_keep)
        if not (self.asking and policy):
            return compute(model, *inputs, batch_size=batch_size, **kwargs)
        out, self._layer_logits = read_along(
            compute, self, self.asking.settings, *self._sampled[1:], inputs, batch_size, kwargs
        )
        return out

    def _calculate_rewards(self, inputs, prompts, completions, completion_ids_list):
        """The only change is that in training the gathered column of raw accuracies becomes that
        of the summed reward terms: every process calls them with the same rollouts, of all."""
        failures = grading_failures.total()
        column = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        if not self.model.training:
            return column
        self.meter.lap("sample")
        failures = sum(gather_object([grading_failures.total() - failures]))
        features = self._layer_logits if self.asking else [None] * len(inputs)
        if features is None:  # TRL made no forward pass
            prompt_ids, *sampled = self._sampled
            first = self.accelerator.process_index * len(inputs)
            features = wrong_answers(
                self, self.asking.settings, column[first : first + len(inputs), 0],
                prompt_ids.__getitem__, *sampled,
            )
        ends = set(self.eos_token_ids)
        rows = gather_object([
            (Problem(x["id"], x["prompt"], x["answer"]), text, len(ids),
             not ids or ids[-1] not in ends, logits)
            for x, text, ids, logits in zip(
                inputs, completions, completion_ids_list, features, strict=True)
        ])
        accuracy = column[:, 0].double().cpu()
        self._kept, counts = keep_groups(self.config, accuracy)
        self.meter.metrics |= {**counts, "grading_failures": failures}
        self._advantages = torch.zeros(len(rows))
        if len(self._kept):
            kept = [(*rows[i], float(accuracy[i])) for i in self._kept.tolist()]
            rewards, self._advantages[self._kept] = self._call_terms(kept)
            column[self._kept.to(column.device), 0] = torch.tensor(rewards).to(column)
        self.meter.lap("terms")
        return column

    def _call_terms(self, kept: list[tuple]) -> tuple[np.ndarray, Tensor]:
        """The summed rewards and the advantages of the rows. A term that draws random numbers
        draws the same ones in every process."""
        problems, texts, lengths, truncated, logits, accuracy = zip(*kept, strict=True)
        rollouts = make_rollouts(
            self.step_in_work, self.config.num_generations, self.config.max_completion_length,
            problems, texts, lengths, truncated, accuracy, logits,
        )
        before = rng_state(self.accelerator.device)
        seed_everything(1_000_003 * self.config.seed + rollouts.step)
        values, rewards = call_terms(self.terms, rollouts)
        restore_rng(before, self.accelerator.device)
        advantages, flat = advantages_of(self.config, rewards, rollouts.accuracy)
        self.meter.metrics |= rollout_metrics(rollouts, values, rewards, flat)
        if self.accelerator.is_main_process:
            write_rollouts(self.folder, rollouts, values, rewards, advantages.numpy())
        return rewards, advantages
