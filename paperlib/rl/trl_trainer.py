"""The subclass of TRL's ``GRPOTrainer`` behind :mod:`paperlib.rl.trl_engine`, which describes it.

Rewards come by a reward function, the learning rate and the metrics by a callback, as TRL offers
it. Each overridden method says what it changes; a test holds their signatures, and the order in
which TRL calls them, against the version that is installed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
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
from paperlib.rl.train import advantages_of, rate_factor, restore_terms, seed_everything
from paperlib.rl.trl_batches import COLUMNS, deal, keep_groups
from paperlib.rl.trl_layers import read_along, wrong_answers
from paperlib.rl.trl_settings import oversampling
from paperlib.tasks.data import Problem
from paperlib.tasks.grading import grade_all
from paperlib.tasks.prompts import build_prompt
from paperlib.tasks.symbolic import failures as grading_failures

# in the order in which a step calls them
OVERRIDDEN = (
    "get_decay_parameter_names", "_prepare_inputs", "_tokenize_prompts",
    "_get_per_token_logps_and_entropies", "_compute_loss", "_clip_grad_norm", "_save_checkpoint",
)  # fmt: skip
TOKEN_MEANS = {  # our name of a metric: TRL's
    "entropy": "entropy", "kl": "kl", "clip_low": "clip_ratio/low_mean",
    "clip_high": "clip_ratio/high_mean",
}  # fmt: skip


class Step:
    """What is known of the generation step at hand."""

    def __init__(self) -> None:
        self.kept, self.advantages = torch.empty(0), torch.empty(0)  # of the rows of all processes
        self.layer_logits: np.ndarray | None = None  # of this process's rows, if TRL's pass saw any
        self.micro_batches: list[dict[str, Tensor]] = []
        self.real_rows: list[int] = []  # of each mini-batch
        self.losses: list[Tensor] = []  # one a micro-batch
        self.norms: list[float] = []  # of the gradient, one an update that was made
        self.skipped = 0  # updates
        self.metrics: dict[str, float] = {}
        self._began = time.perf_counter()

    def lap(self, name: str) -> None:
        """The time since the last lap was a part's of the step."""
        now = time.perf_counter()
        self.metrics[f"seconds/{name}"] = round(now - self._began, 4)
        self._began = now


class StepCallback(TrainerCallback):
    """What our loop does around a generation step, of which TRL knows the updates only: set the
    learning rate, write the metrics, end a run that has nothing to learn from."""

    def __init__(self, trainer: TermsTrainer) -> None:
        self.trainer = trainer

    def on_train_begin(self, args, state, control, **kwargs):
        self.trainer.began = time.time()
        if self.trainer.open_log:
            self.trainer.log_file = self.trainer.open_log(self.trainer.step_in_work - 1)

    def on_step_begin(self, args, state, control, optimizer, **kwargs):
        config = self.trainer.config
        for parameters in optimizer.param_groups:
            parameters["lr"] = config.learning_rate * rate_factor(config, self.trainer.step_in_work)

    def on_step_end(self, args, state, control, **kwargs):
        trainer = self.trainer
        if state.global_step % trainer.config.mini_batches:
            return
        metrics = trainer.end_step()
        if trainer.log_file:
            trainer.log_file.step(metrics)
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
        self.now = Step()
        self.empty_steps, self.earlier_seconds, self.began = 0, 0.0, time.time()
        self.open_log: Callable[[int], RunLog] | None = None  # of the last step that is done
        self.log_file: RunLog | None = None
        super().__init__(reward_funcs=self.score, callbacks=[StepCallback(self)], **trainer)

    @property
    def step_in_work(self) -> int:
        """The generation step that is sampled or trained on, from 1."""
        return self.state.global_step // self.config.mini_batches + 1

    def seconds(self) -> float:
        """Wall time of the run so far, interruptions left out."""
        return self.earlier_seconds + time.time() - self.began

    def get_decay_parameter_names(self, model):
        """The only change is that norms and biases decay too, as in our loop."""
        return [name for name, _ in model.named_parameters()]

    def _prepare_inputs(self, generation_batch):
        """The only change is that in training :meth:`prompts` are sampled, and that :func:`deal`
        cuts the rows of all processes into micro-batches, where TRL shuffles its own."""
        if not self.model.training:
            return super()._prepare_inputs(generation_batch)
        slot, machine = self._step % self.args.steps_per_generation, self.accelerator
        if slot == 0:
            self.now, rows = Step(), {}
            found = self._generate_and_score_completions(self.prompts())
            for name, left in COLUMNS.items():
                if name in found:
                    padded = machine.pad_across_processes(found[name], dim=1, pad_first=left)
                    rows[name] = machine.gather(padded).cpu()
            self.now.micro_batches, self.now.real_rows = deal(
                self.config, rows, self.now.kept, self.now.advantages,
                micro_batch=self.args.per_device_train_batch_size,
                process=machine.process_index, processes=machine.num_processes,
            )
        batch = self.now.micro_batches[slot]
        return {name: value.to(machine.device) for name, value in batch.items()}

    def prompts(self) -> list[dict[str, str]]:
        """This process's share of the step's completions to sample, each a row of the data set;
        with dynamic sampling they are more than TRL's own batch."""
        count = self.config.prompts_per_step * oversampling(self.config)
        first = (self.step_in_work - 1) * count
        rows = [
            row for row in self.train_dataset.select(range(first, first + count)).to_list()
            for _ in range(self.num_generations)
        ]
        share = len(rows) // self.accelerator.num_processes
        return rows[self.accelerator.process_index * share :][:share]

    def _tokenize_prompts(self, prompts):
        """The only change is that a prompt is a bare question, made our loop's by build_prompt."""
        ids = {q: build_prompt(self.processing_class, q, self.config.prompt) for q in set(prompts)}
        return [ids[question] for question in prompts], None, {}

    def _get_per_token_logps_and_entropies(
        self, model, input_ids, attention_mask, logits_to_keep, batch_size=None, **kwargs
    ):
        """The only change is that layer logits come with the sampling policy's logps."""
        compute = super()._get_per_token_logps_and_entropies
        policy = model is self.model and self.model.training and not torch.is_grad_enabled()
        if not (self.asking and policy):
            return compute(model, input_ids, attention_mask, logits_to_keep, batch_size, **kwargs)

        def logps(rows: Tensor) -> Tensor:
            return compute(model, input_ids[rows], attention_mask[rows], logits_to_keep, **kwargs)[0]

        completions = (x[:, -logits_to_keep:] for x in (input_ids, attention_mask))
        out, self.now.layer_logits = read_along(
            self, self.asking.settings, *completions, logps, batch_size
        )
        return out, None, None

    def score(self, prompts, completions, completion_ids, id, answer, **_) -> list[float]:
        """TRL's one reward function: 1 for a right final answer. In training every process then
        calls the reward terms with the same rollouts, of all; TRL's advantages are not used."""
        step, failures = self.now, grading_failures.total()
        right = [float(r) for r in grade_all(completions, answer, questions=prompts)]
        if not self.model.training:
            return right
        step.lap("sample")
        failures = sum(gather_object([grading_failures.total() - failures]))
        layer_logits = step.layer_logits if self.asking else [None] * len(right)
        if layer_logits is None:  # TRL made no forward pass
            layer_logits = wrong_answers(self, self.asking.settings, prompts, completion_ids, right)
        ends = set(self.eos_token_ids)
        truncated = [not ids or ids[-1] not in ends for ids in completion_ids]
        rows = gather_object(list(zip(
            map(Problem, id, prompts, answer), completions, map(len, completion_ids), truncated,
            right, layer_logits, strict=True,
        )))
        accuracy = torch.tensor([row[4] for row in rows], dtype=torch.float64)
        step.kept, counts = keep_groups(self.config, accuracy)
        step.metrics |= {**counts, "grading_failures": failures}
        step.advantages = torch.zeros(len(rows))
        if len(step.kept):
            step.advantages[step.kept] = self._call_terms([rows[i] for i in step.kept.tolist()])
        step.lap("terms")
        return right

    def _call_terms(self, rows: list[tuple]) -> Tensor:
        """The advantages of the rows that are trained on. A term that draws random numbers draws
        the same ones in every process."""
        rollouts = make_rollouts(
            self.step_in_work, self.config.num_generations, self.config.max_completion_length,
            *zip(*rows, strict=True),
        )
        before = rng_state(self.accelerator.device)
        seed_everything(1_000_003 * self.config.seed + rollouts.step)
        values, rewards = call_terms(self.terms, rollouts)
        restore_rng(before, self.accelerator.device)
        advantages, flat = advantages_of(self.config, rewards, rollouts.accuracy)
        self.now.metrics |= rollout_metrics(rollouts, values, rewards, flat)
        if self.accelerator.is_main_process:
            write_rollouts(self.folder, rollouts, values, rewards, advantages.numpy())
        return advantages

    def _compute_loss(self, model, inputs):
        """The only change is that the loss is kept for the metrics."""
        loss = super()._compute_loss(model, inputs)
        self.now.losses.append(loss.detach())
        return loss

    def _clip_grad_norm(self, model):
        """The only change is that an update is left out, as in our loop, when the gradient is not
        finite or nothing is left to learn from: without gradients AdamW changes neither weights nor
        moments."""
        norm = super()._clip_grad_norm(model)
        if self.is_deepspeed_enabled:  # the update is made already, with gradient 0 if need be
            self.now.norms.append(float("nan") if norm is None else float(norm))
            return norm
        rows = self.now.real_rows[self.state.global_step % self.config.mini_batches]
        if rows and np.isfinite(float(norm)):
            self.now.norms.append(float(norm))
        else:
            self.now.skipped += bool(rows)
            model.zero_grad(set_to_none=True)
        return norm

    def end_step(self) -> dict[str, float]:
        """The metrics of the generation step that was trained on, in :mod:`rl.logs`'s names."""
        config, now, number = self.config, self.now, self.step_in_work - 1
        found = self._metrics["train"]
        self.empty_steps = 0 if len(now.kept) else self.empty_steps + 1
        if len(now.kept):
            loss = self.accelerator.gather(torch.stack(now.losses).sum()[None]).mean()
            updates, tokens = len(now.norms), [float(b["tokens"]) for b in now.micro_batches]
            now.metrics |= {
                "loss": float(loss) / max(updates, 1), "grad_norm": sum(now.norms) / max(updates, 1),
                **{
                    name: sum(map(float.__mul__, tokens, found[key])) / max(sum(tokens), 1)
                    for name, key in TOKEN_MEANS.items()
                },
                "updates": updates, "skipped_updates": now.skipped,
            }  # fmt: skip
            now.lap("update")
        found.clear()
        return {
            "step": number,
            "epoch": number * config.prompts_per_step * oversampling(config) / self.problems,
            "learning_rate": config.learning_rate * rate_factor(config, number),
            **now.metrics,
        }

    def _save_checkpoint(self, model, trial):
        """The only change is that our state goes in, under our name, whole or not there; and no
        model card, which GRPOTrainer adds."""
        step = self.state.global_step // self.config.mini_batches
        scratch = Path(self.args.output_dir) / f"checkpoint-{self.state.global_step}"
        terms = {t.name: t.state_dict() for t in self.terms if hasattr(t, "state_dict")}
        with dropped_unless_whole(scratch):
            Trainer._save_checkpoint(self, model, trial)
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
