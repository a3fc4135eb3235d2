"""A training step against TRL's, against the bare model calls in it, and MEDS against DAPO."""

import copy
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measure import Row, alternate, paired_row
from transformers import TrainerCallback

from paperlib.experiments.recipes import recipe
from paperlib.experiments.replay import stored_rollouts
from paperlib.experiments.store import Store
from paperlib.methods.baselines import Correctness
from paperlib.methods.rollouts import call_terms
from paperlib.rl.collect import Batch, collect, make_stream
from paperlib.rl.config import RunConfig
from paperlib.rl.policy import load_policy
from paperlib.rl.train import advantages_of, make_optimizer, reward_terms
from paperlib.rl.trl_rewards import as_reward_function
from paperlib.rl.update import update
from paperlib.tasks.data import load_problems
from paperlib.tasks.prompts import SYSTEM_PROMPTS


def step_config(model: str, prompts: int, generations: int, length: int) -> RunConfig:
    """One update on one batch; learning rate 0, so that every step is the same work."""
    return replace(
        recipe("meds", "GRPO", "tiny", 0), model=model, terms=(Correctness(),), beta=0.0,
        prompts_per_step=prompts, num_generations=generations, max_completion_length=length,
        mini_batches=1, loss_type="dapo", learning_rate=0.0, max_prompt_length=1024,
    )


class Ours:
    """Our loop's step, without anything written."""

    def __init__(self, config: RunConfig, model: Any, tokenizer: Any) -> None:
        self.config, self.model, self.tokenizer = config, model, tokenizer
        self.stream = make_stream(config, load_problems(config.dataset), model, tokenizer)
        self.optimizer = make_optimizer(config, model)
        self.terms = reward_terms(config)
        self.step, self.tokens, self.seconds = 0, [], []

    def __call__(self) -> tuple[Batch, torch.Tensor]:
        self.step += 1
        clock = [time.process_time()]
        batch, _ = collect(self.config, self.step, self.stream, self.model, self.tokenizer)
        _, rewards = call_terms(self.terms, batch.rollouts)
        advantages, _ = advantages_of(self.config, rewards, batch.rollouts.accuracy)
        clock.append(time.process_time())
        update(self.config, self.model, None, self.optimizer, batch, advantages)
        self.tokens.append(sum(map(len, batch.completion_ids)))
        # of sampling and terms, and of the update
        self.seconds.append(np.diff([*clock, time.process_time()]))
        return batch, advantages

    def again(self) -> tuple[Batch, torch.Tensor]:
        """The first step once more: same prompts, same random numbers."""
        self.step = self.stream.drawn = 0
        return self()


class _InTurn(TrainerCallback):
    """Times each of TRL's steps, and lets us make one of ours after it."""

    def __init__(self, ours: Callable[[], Any]) -> None:
        self.ours, self.times, self.tokens = ours, ([], []), []

    def on_step_begin(self, args, state, control, **kwargs):
        self.began = time.process_time()

    def on_step_end(self, args, state, control, **kwargs):
        self.times[1].append(time.process_time() - self.began)
        began = time.process_time()
        self.ours()
        self.times[0].append(time.process_time() - began)


def against_trl(work: str, model: str, sizes: tuple[int, int, int], repeats: int,
                goal: float) -> Row:
    """Our step against one of TRL's GRPOTrainer: same weights, data, sizes and settings."""
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    config = step_config(model, *sizes)
    policy, tokenizer = load_policy(model)
    ours = Ours(config, copy.deepcopy(policy), tokenizer)
    system = {"role": "system", "content": SYSTEM_PROMPTS[config.prompt]}
    data = Dataset.from_list([
        {"id": p.id, "question": p.question, "answer": p.answer,
         "prompt": [system, {"role": "user", "content": p.question}]}
        for p in load_problems(config.dataset)
    ])
    rollouts = config.prompts_per_step * config.num_generations
    tokens: list[int] = []
    reward = as_reward_function(config.terms[0])

    def counted(completion_ids, **columns):
        tokens.append(sum(map(len, completion_ids)))
        return reward(completion_ids=completion_ids, **columns)

    with tempfile.TemporaryDirectory() as folder:
        args = GRPOConfig(
            output_dir=folder, max_steps=repeats + 1, learning_rate=0.0, weight_decay=0.1,
            lr_scheduler_type="constant", num_generations=config.num_generations,
            max_completion_length=config.max_completion_length, temperature=1.0, top_p=1.0,
            per_device_train_batch_size=rollouts, gradient_accumulation_steps=1,
            steps_per_generation=1, num_iterations=1, beta=0.0, loss_type="dapo", epsilon=0.2,
            epsilon_high=0.2, max_grad_norm=1.0, scale_rewards="group", bf16=False,
            gradient_checkpointing=False, save_strategy="no", use_cpu=True, report_to="none",
            disable_tqdm=True, logging_strategy="no",
        )
        timer = _InTurn(ours)
        GRPOTrainer(
            policy, reward_funcs=[counted], args=args, train_dataset=data,
            processing_class=tokenizer, callbacks=[timer],
        ).train()
    times = tuple(side[1:] for side in timer.times)  # the first warms up
    details = (f"{np.mean(ours.tokens[1:]):,.0f} tokens a step, TRL {np.mean(tokens[1:]):,.0f} "
               "(each samples by itself)")
    return paired_row(work, "TRL 1.16 `GRPOTrainer`", times, goal, details)


def meds_over_dapo(runs: Path, repeats: int) -> Row:
    """Paired steps from the end of a tiny MEDS run: the stored one, or a smoke run made here."""
    run = Store(runs).run(recipe("meds", "MEDS", "tiny", 0))
    with tempfile.TemporaryDirectory() as folder:
        if run.status() != "complete":
            run = Store(folder).run(recipe("meds", "MEDS", "smoke", 0))
            run.ensure(progress=False, report_to="none")
        meds = replace(run.config, learning_rate=0.0)
        policy = load_policy(run.checkpoints()[-1][1])
        stored = list(stored_rollouts(run, run.rollouts()))
    work = f"MEDS step over DAPO step, {run.config.profile} model"
    return _overhead_row(work, meds, policy, repeats, 1.04, stored)


def meds_over_dapo_real(repeats: int) -> Row:
    """The same with SmolLM2's weights. It hardly ever boxes an answer, so this is the price of
    recording the layer logits; groups without spread are kept, and the memory stays small."""
    terms = recipe("meds", "MEDS", "tiny", 0).terms[::2]
    meds = replace(step_config("smollm2-gguf", 2, 16, 64), terms=terms)
    policy = load_policy(meds.model)
    return _overhead_row("MEDS step over DAPO step, SmolLM2-135M", meds, policy, repeats, 1.02)


def _overhead_row(
    work: str, meds: RunConfig, policy: tuple[Any, Any], repeats: int, goal: float, stored: Any = ()
) -> Row:
    """Steps with the penalty, its memory filled by ``stored`` rollouts, and without: same weights
    (the learning rate is 0), prompts and seeds, and so the same completions and update."""
    dapo = replace(meds, terms=meds.terms[:-1])
    sides = Ours(meds, *policy), Ours(dapo, *policy)
    for rollouts in stored:
        call_terms(sides[0].terms, rollouts)
    totals = np.array(alternate(*sides, repeats))
    assert sides[0].tokens == sides[1].tokens
    ours, peer = (np.array(side.seconds)[1:, 0] for side in sides)  # [0] warms up
    added = float(np.median((ours - peer) / totals[1]))
    return Row(work, "DAPO", *np.median(totals, axis=1).tolist(), goal,
               f"{100 * added:+.1f} % in sampling and terms; the update does the same work",
               ratio=1 + added)
