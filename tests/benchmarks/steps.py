"""A training step against TRL's GRPOTrainer, and MEDS against DAPO."""

import copy
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from measure import alternate, paired_row
from transformers import TrainerCallback

from paperlib.experiments.recipes import recipe
from paperlib.methods.baselines import Correctness
from paperlib.methods.rollouts import call_terms
from paperlib.rl.collect import collect, make_stream
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


def our_steps(config: RunConfig, model: Any, tokenizer: Any) -> Callable[[], int]:
    """A call is the next step, without anything written; the number of its tokens."""
    stream = make_stream(config, load_problems(config.dataset), model, tokenizer)
    optimizer, terms, step = make_optimizer(config, model), reward_terms(config), 0

    def one() -> int:
        nonlocal step
        step += 1
        batch, _ = collect(config, step, stream, model, tokenizer)
        _, rewards = call_terms(terms, batch.rollouts)
        advantages, _ = advantages_of(config, rewards, batch.rollouts.accuracy)
        update(config, model, None, optimizer, batch, advantages)
        return sum(map(len, batch.completion_ids))

    return one


class _InTurn(TrainerCallback):
    """Times each of TRL's steps, and one of ours after it."""

    def __init__(self, ours: Callable[[], int]) -> None:
        self.ours, self.times, self.tokens = ours, ([], []), []

    def on_step_begin(self, args, state, control, **kwargs):
        self.began = time.process_time()

    def on_step_end(self, args, state, control, **kwargs):
        ended = time.process_time()
        self.tokens.append(self.ours())
        self.times[0].append(time.process_time() - ended)
        self.times[1].append(ended - self.began)


def against_trl(
    work: str, model: str, sizes: tuple[int, int, int], repeats: int, goal: float
) -> list[dict[str, Any]]:
    """Same weights, data, sizes and settings; each samples by itself."""
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    config = step_config(model, *sizes)
    policy, tokenizer = load_policy(model)
    timer = _InTurn(our_steps(config, copy.deepcopy(policy), tokenizer))
    system = {"role": "system", "content": SYSTEM_PROMPTS[config.prompt]}
    data = Dataset.from_list([
        {"id": p.id, "question": p.question, "answer": p.answer,
         "prompt": [system, {"role": "user", "content": p.question}]}
        for p in load_problems(config.dataset)
    ])
    tokens, reward = [], as_reward_function(config.terms[0])

    def counted(completion_ids, **columns):
        tokens.append(sum(map(len, completion_ids)))
        return reward(completion_ids=completion_ids, **columns)

    with tempfile.TemporaryDirectory() as folder:
        args = GRPOConfig(
            output_dir=folder, max_steps=repeats + 1, learning_rate=0.0, weight_decay=0.1,
            lr_scheduler_type="constant", num_generations=config.num_generations,
            max_completion_length=config.max_completion_length, temperature=1.0, top_p=1.0,
            per_device_train_batch_size=config.prompts_per_step * config.num_generations,
            gradient_accumulation_steps=1, steps_per_generation=1, num_iterations=1, beta=0.0,
            loss_type="dapo", epsilon=0.2, epsilon_high=0.2, max_grad_norm=1.0,
            scale_rewards="group", bf16=False, gradient_checkpointing=False, save_strategy="no",
            use_cpu=True, report_to="none", disable_tqdm=True, logging_strategy="no",
        )
        GRPOTrainer(policy, reward_funcs=[counted], args=args, train_dataset=data,
                    processing_class=tokenizer, callbacks=[timer]).train()  # fmt: skip
    times = tuple(side[1:] for side in timer.times)  # the first warms up
    details = (f"{np.mean(timer.tokens[1:]):,.0f} tokens a step, TRL {np.mean(tokens[1:]):,.0f} "
               "(each samples by itself)")  # fmt: skip
    return [paired_row(work, "TRL 1.16 `GRPOTrainer`", times, goal, details)]


def meds_over_dapo(repeats: int) -> list[dict[str, Any]]:
    """Paired steps with SmolLM2's weights (notebooks/meds/cost.ipynb has the tiny model's). It
    hardly ever boxes an answer, so this is the price of recording the layer logits."""
    small, terms = step_config("smollm2-gguf", 2, 16, 64), recipe("meds", "MEDS", "tiny", 0).terms
    policy = load_policy(small.model)
    meds, dapo = (our_steps(replace(small, terms=of), *policy) for of in (terms[::2], terms[:1]))
    times = alternate(meds, dapo, repeats)
    return [paired_row("MEDS step over DAPO step, SmolLM2-135M", "DAPO", times, 1.02)]
