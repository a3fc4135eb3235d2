"""What the tests of the TRL engine share: completions that do not depend on TRL's sampler."""

from __future__ import annotations

import hashlib
import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from accelerate.utils import gather_object

from paperlib.experiments.recipes import recipe
from paperlib.rl import trl_engine
from paperlib.rl.config import RunConfig
from paperlib.rl.policy import end_tokens, pad_token
from paperlib.rl.sampling import sample_groups


def our_sampler(trainer):
    """Make a trainer sample as our loop does, with the numbers of the same seed and step."""

    def generate(prompt_ids, images, fields, num_generations, **_):
        config = trainer.config
        digest = hashlib.sha256(f"sample-{config.seed}-{trainer.step_in_work}-0".encode()).digest()
        everything = gather_object(prompt_ids)  # a group may straddle processes
        samples = sample_groups(
            trainer.model, everything[::num_generations], num_generations,
            max_completion_length=config.max_completion_length, temperature=config.temperature,
            top_p=config.top_p,
            generator=torch.Generator().manual_seed(int.from_bytes(digest[:7])),
            eos_token_ids=end_tokens(trainer.model, trainer.processing_class),
            pad_token_id=pad_token(trainer.processing_class),
        )
        first = trainer.accelerator.process_index * len(prompt_ids)
        return samples.completion_ids[first : first + len(prompt_ids)], None

    trainer._generate_single_turn = generate


def memory_hash(terms) -> str:
    """One hash of what all terms remember."""
    buffer = hashlib.sha256()

    def add(value):
        if isinstance(value, torch.Tensor | np.ndarray):
            value = np.asarray(value).tolist()
        if isinstance(value, dict):
            for key in value:
                buffer.update(repr(key).encode())
                add(value[key])
        elif isinstance(value, list | tuple):
            for item in value:
                add(item)
        else:
            buffer.update(repr(value).encode())

    for term in terms:
        if hasattr(term, "state_dict"):
            add(term.state_dict())
    return buffer.hexdigest()


def straddling() -> RunConfig:
    """Three prompts of four completions a step: over two processes the second group straddles.

    All memories of both papers, and three updates a step.
    """
    meds, memory_r = recipe("meds", "MEDS", "smoke", 0), recipe("memory_r", "Memory-R+", "smoke", 0)
    return replace(
        meds, engine="trl", terms=(*memory_r.terms, meds.terms[-1]), dynamic_sampling=False,
        prompts_per_step=3, num_generations=4, mini_batches=3, max_steps=4, save_steps=4,
        max_completion_length=48, beta=0.04, prompt="tags",
    )


def train_and_evaluate(folder: Path) -> None:
    """The run of :func:`straddling` in ``folder``, under a launcher or not; then an evaluation by
    TRL. Each process writes the hashes of its memories after each step and at the end."""
    torch.set_num_threads(1)
    real, hashes, made = trl_engine.make_trainer, [], []

    def make(*args, **kwargs):
        trainer = real(*args, **kwargs)
        our_sampler(trainer)
        end = trainer.end_step

        def end_step():
            hashes.append(memory_hash(trainer.terms))
            return end()

        trainer.end_step = end_step
        made.append(trainer)
        return trainer

    trl_engine.make_trainer = make
    try:
        trl_engine.train(straddling(), folder, device="cpu", progress=False)
    finally:
        trl_engine.make_trainer = real
    trainer = made[0]
    trainer.evaluate(trainer.train_dataset.select(range(4)))
    hashes.append(memory_hash(trainer.terms))
    rank = trainer.accelerator.process_index
    (folder / f"hashes-{rank}.json").write_text(json.dumps(hashes))


if __name__ == "__main__":
    train_and_evaluate(Path(sys.argv[1]))
