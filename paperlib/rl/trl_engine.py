"""A run inside TRL: ``RunConfig(engine="trl")`` trained by one subclass of ``GRPOTrainer``.

The run folder is that of our loop (:mod:`paperlib.rl.train`), so that tables, replay and evaluation
need not know the engine; ``paperlib/rl/README.md`` says what differs. Against TRL's own trainer:

1. Rewards are our reward terms, called with the rollouts of all processes in each of them, and
   never in evaluation. Advantages are ours (float64, ``advantage_epsilon``).
2. Mini-batches are whole groups in our loop's order, whatever the number of processes, and the dapo
   loss divides by its own mini-batch's tokens, TRL's by the mean of all.
3. The learning rate stays the same within a generation step; weight decay is on all parameters.
4. Checkpoints hold the memories and get our folder's names.
"""

import os
import time
import warnings
from pathlib import Path

from datasets import Dataset
from transformers import PrinterCallback
from trl import GRPOConfig

from paperlib.errors import UserError
from paperlib.rl.checkpoint import load_state, newest_checkpoint
from paperlib.rl.collect import make_stream
from paperlib.rl.config import RunConfig, finished
from paperlib.rl.logs import RunLog, Watch, check_trackers
from paperlib.rl.policy import SMOLLM2, check_precision, load_policy, resolve_device
from paperlib.rl.train import end_reason, open_folder, restore_terms, reward_terms
from paperlib.rl.trl_settings import grpo_settings, oversampling
from paperlib.rl.trl_trainer import TermsTrainer
from paperlib.tasks.data import load_problems


def train(
    config: RunConfig, folder: Path, *, device: str = "auto", progress: bool = True,
    watch: Watch | None = None, report_to: str = "tensorboard", vllm: bool = False,
) -> None:
    """Train the run in ``folder`` with TRL, or resume it; a finished run is left as it is.

    Under ``accelerate launch`` every process calls this; the first of them writes the folder. Which
    GPU is "cuda" is the launcher's to say; with ``vllm`` sampling shares the GPUs with training.
    ``watch`` and ``report_to`` are as in :func:`paperlib.rl.train.train`.
    """
    folder = Path(folder)
    if finished(config, folder):
        return
    trackers = check_trackers(report_to)
    place = resolve_device(device)
    check_precision(config.precision, place)
    trainer = make_trainer(config, folder, place.type, vllm=vllm)
    first = trainer.is_world_process_zero()
    if first:
        open_folder(config, folder, place.type, processes=trainer.args.world_size, vllm=vllm)
    trainer.accelerator.wait_for_everyone()
    checkpoint, start = newest_checkpoint(folder, config.save_steps), 0
    if checkpoint:
        state = load_state(checkpoint)
        restore_terms(trainer.terms, state["terms"])
        start, trainer.empty_steps = state["step"], state["empty_steps"]
        trainer.began -= state["seconds"]
    if first:
        trainer.run_log = RunLog(
            folder, start, config.max_steps, progress=progress, watch=watch, trackers=trackers,
            max_skipped_steps=config.max_skipped_steps,
        )
    try:
        if trainer.empty_steps < config.max_empty_steps:  # else killed before complete.json
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", FutureWarning)  # TRL's own words to transformers
                trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    finally:
        if first:
            trainer.run_log.close()
    if first:
        trainer.run_log.complete(
            end_reason(config, trainer.empty_steps), time.time() - trainer.began
        )


def make_trainer(
    config: RunConfig, folder: Path, device: str = "cpu", *, vllm: bool = False
) -> TermsTrainer:
    """The trainer of a run, ready to train from the start or from a checkpoint of ``folder``."""
    if config.engine != "trl":
        raise UserError(f"engine is {config.engine!r}; this one trains 'trl'")
    if config.beta and ("::" in config.model or config.model == SMOLLM2):
        raise UserError(
            f"TRL loads the reference model by its name, and cannot load {config.model!r}; valid "
            "with beta > 0: 'tiny', a folder or a hub id, no subfolder"
        )
    problems = load_problems(config.dataset)
    terms = reward_terms(config)
    processes = int(os.environ.get("WORLD_SIZE", 1))  # set by the launcher
    settings = grpo_settings(config, device, processes, vllm=vllm)
    # before the model: under ZeRO-3 it decides how weights are loaded
    args = GRPOConfig(output_dir=str(folder / "checkpoints"), **settings)
    model, tokenizer = load_policy(config.model)
    stream = make_stream(config, problems, model, tokenizer)
    order = stream.next(config.max_steps * config.prompts_per_step * oversampling(config))
    data = Dataset.from_list([
        {"prompt": p.question, "id": p.id, "answer": p.answer}
        for p in (stream.problems[i] for i in order)
    ])
    trainer = TermsTrainer(
        config, terms, folder, len(stream.problems), model=model, args=args,
        processing_class=tokenizer, train_dataset=data,
    )
    trainer.remove_callback(PrinterCallback)
    if trainer.asking and trainer._dist.is_fsdp:
        raise UserError(
            f"reward term {trainer.asking.name!r} needs layer logits, which are not read under "
            "FSDP; valid: ZeRO-3, or a model that is not sharded"
        )
    return trainer
