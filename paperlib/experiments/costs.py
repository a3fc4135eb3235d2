"""What runs cost before they are started: tokens, hours of a GPU, memory and disk.

Tokens are upper bounds: prompts x G x the longest length. With N parameters a token takes 2 N
operations in a forward pass and 6 N with gradient; time is these at an assumed utilisation.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from paperlib.evaluation.settings import ROWS, EvalSettings
from paperlib.experiments.benchmarks import task_data
from paperlib.experiments.jobs import Job
from paperlib.experiments.recipes import LAUNCH
from paperlib.experiments.sizes import SIZES
from paperlib.rl.cache import rows_at_once
from paperlib.rl.config import RunConfig
from paperlib.tasks.data import problem_count

CARD, CARD_FLOPS, CARD_BYTES = "A100 80 GB", 312e12, 80e9  # bf16, dense: NVIDIA's data sheet
TRAINING, SAMPLING = 0.30, 0.02  # utilisation, assumed: long passes; token by token in float32
CPU_TOKENS = 98  # a second, SmolLM2-135M sampled in 16 rows on two cores: measured
TEXT_BYTES = 4  # a token, stored as text
STATES = 3  # optimiser states on disk: the two that rl.checkpoint keeps, and the one written


@dataclass(frozen=True)
class Cost:
    """Tokens at most, seconds on CARD, bytes on disk."""

    sampled: int = 0  # in training; our engine: one generation batch a step
    trained: int = 0  # prompts included
    evaluated: int = 0
    seconds: float = 0.0
    disk: int = 0


def cost(job: Job) -> Cost:
    """What is left to do: all of it, or of a complete run the evaluations that it lacks."""
    config = job.run.config
    parameters = SIZES[config.model].parameters
    if job.run.status() == "complete":
        left = [e for e, step in job.checkpoints()
                if not job.run.evaluation_path(step, e).exists()]  # fmt: skip
        evaluated = sum(map(evaluation_tokens, left))
        seconds = 2 * parameters * evaluated / (CARD_FLOPS * SAMPLING)
        return Cost(evaluated=evaluated, seconds=seconds, disk=TEXT_BYTES * evaluated)
    # checkpoints: of the base model one, else one every save_steps and one at the end
    count = -(-config.max_steps // config.save_steps) or 1
    rows = config.max_steps * config.prompts_per_step * config.num_generations
    draws = config.oversampling
    sampled = draws * rows * config.max_completion_length
    trained = rows * (config.max_prompt_length + config.max_completion_length)
    of_first, *of_others = map(evaluation_tokens, job.evaluations)
    evaluated = of_first * (1 if job.which == "last" else count)
    evaluated += sum(of_others) * {"last": 1, "all": count, "chosen": min(2, count)}[job.which]
    # passes without gradient: old log-probabilities, reference, recomputed activations
    extra = (config.precision == "bf16") + (config.beta > 0) + config.gradient_checkpointing
    seconds = (
        2 * parameters * (sampled + evaluated) / SAMPLING
        + (6 + 2 * extra) * parameters * trained / TRAINING
    ) / CARD_FLOPS
    # float32 weights of every checkpoint; Adam's two moments of the last ones and the one written
    states = min(count, STATES) if config.max_steps else 0
    disk = 4 * parameters * count + 8 * parameters * states + TEXT_BYTES * (sampled + evaluated)
    return Cost(sampled, trained, evaluated, seconds, disk)


def evaluation_tokens(settings: EvalSettings) -> int:
    """Tokens to sample for one checkpoint, at most."""
    problems = sum(map(problem_count, task_data(settings.task)))
    return problems * settings.samples * settings.max_completion_length


def memory_bytes(
    config: RunConfig, evaluations: Sequence[EvalSettings], room: float
) -> tuple[int, int]:
    """Memory of a GPU in bytes: (float32 weights, gradients, Adam, reference: 16 or 20 a parameter;
    keys and values of the rows that a card with ``room`` samples at once, one at least).
    Activations come on top."""
    size, trains = SIZES[config.model], config.max_steps > 0
    weights = ((16 if trains else 4) + (4 if trains and config.beta else 0)) * size.parameters
    if config.engine == "trl":  # vLLM keeps to its own share
        return weights // LAUNCH[config.paper][2], 0
    sampled = [(ROWS, e.max_completion_length) for e in evaluations]
    if trains:
        rows = config.prompts_per_step * config.num_generations
        sampled.append((rows, config.max_completion_length))
    tokens = []
    for rows, completion in sampled:
        length = config.max_prompt_length + completion
        tokens.append(length * rows_at_once(rows, length, size.cache_bytes, room - weights))
    return weights, size.cache_bytes * max(tokens)
