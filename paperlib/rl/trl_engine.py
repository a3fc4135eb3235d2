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
from typing import Any

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
from paperlib.rl.trl_trainer import TermsTrainer
from paperlib.tasks.data import load_problems

# TRL's defaults move between releases: every setting that can change a result is said.
# settings that have one name in both
SAME = (
    "num_generations", "max_completion_length", "temperature", "top_p", "loss_type", "epsilon",
    "epsilon_high", "beta", "mask_truncated_completions", "learning_rate", "adam_beta1",
    "adam_beta2", "adam_epsilon", "weight_decay", "max_grad_norm", "seed",
)  # fmt: skip
# what our loop does not have
FIXED = {
    "num_generations_eval": None, "num_iterations": 1, "top_k": 0, "min_p": None,
    "repetition_penalty": 1.0, "generation_kwargs": None, "chat_template_kwargs": None,
    "use_transformers_continuous_batching": False,  # it casts the weights that are trained
    "shuffle_dataset": False,  # the order is PromptStream's
    "remove_unused_columns": False,
    "use_bias_correction_kl": False, "importance_sampling_level": "token",
    "top_entropy_quantile": 1.0, "entropy_coef": 0.0, "use_adaptive_entropy": False,
    "off_policy_mask_threshold": None, "sync_ref_model": False, "router_aux_loss_coef": 0.0,
    "disable_dropout": True,  # it samples in train mode
    # the ratio is to the weights that train, whoever samples, as in our loop under bf16
    "vllm_importance_sampling_correction": False,
    "fp16": False, "cast_lm_head_to_fp32": False,
    "activation_checkpointing_kwargs": {"use_reentrant": False},
    "lr_scheduler_type": "constant",  # the rate is set anew at each step, as in our loop
    "save_strategy": "steps", "save_total_limit": None, "ddp_find_unused_parameters": False,
    "eval_strategy": "no",  # checkpoints are evaluated by paperlib.evaluation
    "logging_strategy": "no", "report_to": [], "disable_tqdm": True,  # by rl.logs alone
}  # fmt: skip


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
    order = stream.next(config.max_steps * config.prompts_per_step * config.oversampling)
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


def grpo_settings(
    config: RunConfig, device: str = "cpu", processes: int = 1, *, vllm: bool = False
) -> dict[str, Any]:
    """Keyword arguments of ``trl.GRPOConfig``, each update's completions shared out evenly among
    the processes. ``device`` ("cpu" or "cuda") and ``vllm``, sampling on the GPUs that train,
    change how fast and not what is computed. TRL counts batch sizes in completions and everything
    else in updates."""
    completions = config.prompts_per_step * config.num_generations
    per_update = completions // config.mini_batches
    if per_update % processes:
        raise UserError(
            f"an update has {per_update} completions (prompts_per_step {config.prompts_per_step} x "
            f"num_generations {config.num_generations} / mini_batches {config.mini_batches}), "
            f"which do not divide by {processes} processes"
        )
    local = per_update // processes
    width = config.max_prompt_length + config.max_completion_length
    room = max(1, config.micro_batch_tokens // width)  # completions in one pass with gradient
    per_device = max(n for n in range(1, min(local, room) + 1) if local % n == 0)
    settings = {
        **{name: getattr(config, name) for name in SAME}, **FIXED,
        "generation_batch_size": completions,  # trained on; dynamic sampling draws more
        # min(ratio, delta) binds where the advantage is negative only: the dual clip
        "delta": config.dual_clip,
        "per_device_train_batch_size": per_device,
        "gradient_accumulation_steps": local // per_device,
        "max_steps": config.max_steps * config.mini_batches,
        "bf16": config.precision == "bf16",
        "activation_checkpointing": config.gradient_checkpointing,
        # checkpoints on generation boundaries only: there alone a resumed run is exact
        "save_steps": config.save_steps * config.mini_batches,
        "use_cpu": device == "cpu",
        "optim": "adamw_torch" if device == "cpu" else "adamw_torch_fused",
        "use_vllm": vllm,
    }
    if device == "cpu" and processes > 1:
        settings["ddp_backend"] = "gloo"
    if vllm:
        settings |= {
            "vllm_mode": "colocate",
            "vllm_max_model_length": config.max_prompt_length + config.max_completion_length,
            "vllm_gpu_memory_utilization": 0.3,
            "vllm_enable_sleep_mode": True,
        }
    return settings
