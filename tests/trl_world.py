"""What the tests of the TRL engine share: completions that do not depend on TRL's sampler."""

from __future__ import annotations

import hashlib

import torch

from paperlib.rl.policy import end_tokens, pad_token
from paperlib.rl.sampling import sample_groups


def our_sampler(trainer):
    """Make a trainer sample as our loop does, with the numbers of the same seed and step."""

    def generate(prompt_ids, images, fields, num_generations, **_):
        config = trainer.config
        digest = hashlib.sha256(f"sample-{config.seed}-{trainer.step_in_work}-0".encode()).digest()
        samples = sample_groups(
            trainer.model, prompt_ids[::num_generations], num_generations,
            max_completion_length=config.max_completion_length, temperature=config.temperature,
            top_p=config.top_p,
            generator=torch.Generator().manual_seed(int.from_bytes(digest[:7])),
            eos_token_ids=end_tokens(trainer.model, trainer.processing_class),
            pad_token_id=pad_token(trainer.processing_class),
        )
        return samples.completion_ids, None

    trainer._generate_single_turn = generate
