"""How the cost of a step grows with what it is made of."""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from measure import exponent, timed
from memories import terms_and_batches
from rollout_batches import rollouts
from sampling_bench import random_model
from steps import step_config

from paperlib.methods.meds import ClusterPenalty, Meds
from paperlib.methods.rollouts import Rollouts
from paperlib.rl.collect import Batch
from paperlib.rl.sampling import sample_groups
from paperlib.rl.train import make_optimizer
from paperlib.rl.update import update

PROMPTS, PROMPT = 4, 50


def step_seconds(model: Any, group: int, length: int, repeats: int) -> float:
    """Sampling and update of 4 prompts with ``group`` completions of exactly ``length`` tokens."""
    config = step_config("tiny", PROMPTS, group, length)
    config = replace(config, micro_batch_tokens=4096)
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(5, 500, (PROMPTS, PROMPT), generator=generator).tolist()
    optimizer, n = make_optimizer(config, model), PROMPTS * group
    advantages = torch.randn(n, generator=generator)

    def step() -> None:
        found = sample_groups(
            model, ids, group, max_completion_length=length, temperature=1.0, top_p=1.0,
            seed=0, eos_token_ids=(), pad_token_id=0,
        )
        each = [p for p in ids for _ in range(group)]
        batch = Batch(rollouts([""] * n), each, found.completion_ids, found.logps)
        update(config, model, None, optimizer, batch, advantages)

    return float(np.median([timed(step) for _ in range(repeats)]))


def memory_seconds(queries: int, repeats: int) -> float:
    """Both Memory-R+ terms on a batch of 64, with so many stored questions of 2 responses."""
    terms, batches, *_ = terms_and_batches(queries, 2, k=20)
    batch = batches()
    return float(np.median([timed(lambda: [t(batch) for t in terms]) for _ in range(repeats)]))


def cluster_seconds(stored: int, prompts: int = 512, new: int = 8) -> float:
    """The cluster penalty of a step with 512 prompts that each have so many stored vectors."""
    rng = np.random.default_rng(0)

    def wrong(each: int) -> Rollouts:
        n = prompts * each
        kinds = rng.normal(size=(max(2, stored // 8), 28))
        return rollouts(
            ["2"] * n, problem_ids=[str(i // each) for i in range(n)], num_generations=each,
            layer_logits=kinds[rng.integers(len(kinds), size=n)] + rng.normal(size=(n, 28)) / 20,
        )

    term = ClusterPenalty(Meds.paper())
    term(wrong(stored))  # the first visit only stores
    batch = wrong(new)
    return timed(lambda: term(batch))


def growth(repeats: int) -> list[dict[str, Any]]:
    """A row per quantity: sizes, seconds, and the exponent over the upper half of the sizes."""
    small = random_model()
    cases = (
        ("group size", (4, 8, 16, 32, 64), lambda n: step_seconds(small, n, 48, repeats),
         "1: so many more completions"),
        ("completion length", (16, 32, 64, 128, 256), lambda n: step_seconds(small, 8, n, repeats),
         "1, attention 2"),
        ("vocabulary", (512, 2048, 8192, 32768, 151936),
         lambda n: step_seconds(random_model(n), 8, 24, 1),
         "1 where the unembedding is the most of the model"),
        ("stored queries", (100, 1000, 10_000, 100_000), lambda n: memory_seconds(n, repeats + 2),
         "1: exact search"),
        ("stored vectors per prompt, 512 prompts", (8, 32, 128, 512), cluster_seconds,
         "2: distances of all pairs"),
    )  # fmt: skip
    rows = []
    for against, sizes, measure, work in cases:
        seconds, half = [measure(n) for n in sizes], len(sizes) // 2
        rows.append({"against": against, "sizes": sizes, "seconds": seconds, "work": work,
                     "exponent": exponent(sizes[half:], seconds[half:])})  # fmt: skip
    return rows
