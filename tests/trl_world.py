"""What the tests of the TRL engine share: a fixed batch, and completions that do not depend on
TRL's sampler. As a program it is one process of the test with two."""

import hashlib
import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from accelerate.utils import gather_object
from trl import GRPOTrainer

from paperlib.experiments.recipes import recipe
from paperlib.rl import trl_engine
from paperlib.rl.collect import Batch, make_rollouts
from paperlib.rl.config import RunConfig
from paperlib.rl.logps import completion_logps
from paperlib.rl.padding import left_padded
from paperlib.rl.policy import end_tokens, load_policy, pad_token
from paperlib.rl.sampling import sample_groups
from paperlib.rl.trl_rollouts import deal
from paperlib.rl.trl_trainer import TermsTrainer
from paperlib.rl.update import _backward
from paperlib.tasks.data import Problem


def fixed_batch(config, model):
    """16 rows of 4 prompts of different lengths, two of them cut, with the policy's own logps and
    noise, so that ratios lie on both sides of the clips but not far out; and advantages."""
    generator = torch.Generator().manual_seed(0)

    def tokens(n):
        return torch.randint(5, 200, (n,), generator=generator).tolist()

    n, size = config.prompts_per_step * config.num_generations, config.num_generations
    prompts = [tokens(5 + 3 * i) for i in range(config.prompts_per_step)]
    prompt_ids = [prompts[i // size] for i in range(n)]
    completion_ids = [tokens(int(torch.randint(1, 20, (), generator=generator))) for _ in range(n)]
    rollouts = make_rollouts(
        1, size, config.max_completion_length, [Problem("", "", "")] * n, [""] * n,
        [len(c) for c in completion_ids], np.isin(np.arange(n), (3, 6)), [0.0] * n,
    )
    with torch.no_grad():
        logps, _, _ = completion_logps(
            model, prompt_ids, completion_ids, temperature=config.temperature
        )
    old = [
        row[: len(ids)].cpu() + 0.5 * torch.randn(len(ids), generator=generator)
        for row, ids in zip(logps, completion_ids, strict=True)
    ]
    return Batch(rollouts, prompt_ids, completion_ids, old), torch.randn(n, generator=generator)


def trl_rows(batch, config, reference):
    """The fixed batch as TRL has it: prompts padded on the left, completions on the right."""
    prompts, prompt_mask, _ = left_padded(batch.prompt_ids, 0, torch.device("cpu"))
    pad = torch.nn.utils.rnn.pad_sequence
    rows = {
        "prompt_ids": prompts, "prompt_mask": prompt_mask,
        "completion_ids": pad([torch.tensor(c) for c in batch.completion_ids], batch_first=True),
        "completion_mask": pad(
            [torch.ones(len(c), dtype=torch.long) for c in batch.completion_ids], batch_first=True
        ),
        "old_per_token_logps": pad(batch.logps, batch_first=True),
    }  # fmt: skip
    if config.mask_truncated_completions:  # as GRPOTrainer._generate_and_score_completions does
        rows["completion_mask"][torch.as_tensor(batch.rollouts.truncated)] = 0
    if reference is not None:
        with torch.no_grad():
            rows["ref_per_token_logps"] = completion_logps(
                reference, batch.prompt_ids, batch.completion_ids, temperature=config.temperature
            )[0].cpu()
    return rows


def gradient(model):
    flat = torch.cat([p.grad.flatten() for p in model.parameters()])
    model.zero_grad(set_to_none=True)
    return flat


def loss_parity(
    loss_type: str, beta: float, folder: Path, device: str = "cpu", precision: str = "fp32"
) -> list[tuple[float, float]]:
    """Relative difference of loss and gradient between TRL's and our loop, for two mini-batches
    of one fixed batch."""
    config = replace(
        recipe("meds", "GRPO", "smoke", 0), engine="trl", loss_type=loss_type, beta=beta,
        num_generations=4, mask_truncated_completions=True, epsilon_high=0.28, dual_clip=1.5,
        temperature=0.9, micro_batch_tokens=640, precision=precision,
    )  # fmt: skip
    trainer = trl_engine.make_trainer(config, folder, device)
    assert trainer.args.gradient_accumulation_steps == 2
    model = trainer.model.train()
    reference = None
    if beta:
        reference = load_policy(config.model)[0]
        with torch.no_grad():  # another model, or the KL is 0
            for p in reference.parameters():
                p.add_(0.02 * torch.randn(p.shape, generator=torch.Generator().manual_seed(2)))
        reference.to(device)
    batch, advantages = fixed_batch(config, model)
    trainer.current_gradient_accumulation_steps = 2
    rows, size = trl_rows(batch, config, reference), trainer.args.per_device_train_batch_size
    dealt, _ = deal(config, rows, list(range(16)), advantages, micro_batch=size)
    assert len(dealt) == 4
    found = []
    for window, rows in enumerate((range(8), range(8, 16))):
        theirs = 0.0
        for micro in dealt[2 * window : 2 * window + 2]:
            micro = {name: value.to(device) for name, value in micro.items()}
            loss = GRPOTrainer._compute_loss(trainer, model, micro)
            loss.backward()
            theirs += loss.item()
        their_gradient = gradient(model)
        ours, stats = _backward(config, model, reference, batch, advantages, list(rows))
        our_gradient = gradient(model)
        assert stats["clip_low"] and stats["clip_high"] and stats["dual_clip"]
        apart = (their_gradient - our_gradient).norm() / our_gradient.norm()
        found.append((abs(theirs - ours) / abs(ours), float(apart)))
    return found


def with_our_sampler(patch) -> None:
    """Make TRL sample as our loop does, with the numbers of the same seed and step."""

    def generate(trainer, prompt_ids, images, fields, num_generations, **_):
        config = trainer.config
        everything = gather_object(prompt_ids)  # a group may straddle processes
        samples = sample_groups(
            trainer.model, everything[::num_generations], num_generations,
            max_completion_length=config.max_completion_length, temperature=config.temperature,
            top_p=config.top_p,
            seed=f"{config.seed}-{trainer.step_in_work}-0",
            eos_token_ids=end_tokens(trainer.model, trainer.processing_class),
            pad_token_id=pad_token(trainer.processing_class),
        )
        first = trainer.accelerator.process_index * len(prompt_ids)
        return samples.completion_ids[first : first + len(prompt_ids)], None

    patch.setattr(TermsTrainer, "_generate_single_turn", generate)


def memory_hash(terms) -> str:
    """One hash of what all terms remember."""
    states = [term.state_dict() for term in terms if hasattr(term, "state_dict")]
    text = json.dumps(states, default=lambda array: np.asarray(array).tolist())
    return hashlib.sha256(text.encode()).hexdigest()


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
    hashes, made, end = [], [], TermsTrainer.end_step

    def end_step(trainer):
        made[:] = [trainer]
        hashes.append(memory_hash(trainer.terms))
        return end(trainer)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TermsTrainer, "end_step", end_step)
        with_our_sampler(patch)
        trl_engine.train(straddling(), folder, device="cpu", progress=False)
    trainer = made[0]
    trainer.evaluate(trainer.train_dataset.select(range(4)))
    hashes.append(memory_hash(trainer.terms))
    rank = trainer.accelerator.process_index
    (folder / f"hashes-{rank}.json").write_text(json.dumps(hashes))


if __name__ == "__main__":
    train_and_evaluate(Path(sys.argv[1]))
