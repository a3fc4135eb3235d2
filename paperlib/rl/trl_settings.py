"""A RunConfig in TRL's words: every setting of ``GRPOConfig`` that can change a result.

TRL's defaults move between releases, so none is relied on. TRL counts batch sizes in completions
and everything else in updates, of which a generation batch has ``mini_batches``.
"""

from pathlib import Path
from typing import Any

from paperlib.errors import UserError
from paperlib.rl.config import RunConfig

# Dynamic sampling in one draw: so many times prompts_per_step groups are sampled, and the first
# prompts_per_step of them with spread in accuracy are kept. Ours; our loop draws until it has them.
OVERSAMPLING = 2

# accelerate's configurations; what is computed is the run's config alone
LAUNCH_DIR = Path(__file__).parent / "launch"


def oversampling(config: RunConfig) -> int:
    """Groups drawn in a step, in units of ``prompts_per_step``."""
    return OVERSAMPLING if config.dynamic_sampling else 1


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


def grpo_settings(
    config: RunConfig, device: str = "cpu", processes: int = 1, *, vllm: bool = False
) -> dict[str, Any]:
    """Keyword arguments of ``trl.GRPOConfig``, each update's completions shared out evenly among
    the processes. ``device`` ("cpu" or "cuda") and ``vllm``, sampling on the GPUs that train,
    change how fast and not what is computed."""
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
