"""Which settings each method of each paper is run with; every number with its source.

``recipe(paper, method, profile, seed, preset, model)`` starts from the paper's own settings and
lets the profile change what a profile may change: model, data, learning rate, batch and sequence
sizes, and what is counted in steps or tokens. Reward terms, loss, clips, KL and preset never
change.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from paperlib.errors import check_choice
from paperlib.evaluation.settings import EvalSettings
from paperlib.experiments.benchmarks import TASKS
from paperlib.experiments.profiles import scale_down
from paperlib.methods import baselines as b
from paperlib.methods.meds import ClusterPenalty, Meds
from paperlib.methods.memory_r import Exploit, Explore, MemoryR
from paperlib.rl.config import ENGINES, RunConfig

METHODS: dict[str, tuple[str, ...]] = {
    "memory_r": ("Base", "R1", "Cosine", "Memory-R", "Memory-R+"),
    "meds": ("Base", "GRPO", "DAPO", "GRPO w/ Entropy Adv", "MEDS"),
}
PROFILES = ("smoke", "tiny", "laptop", "paper")
PRESETS = ("paper", "released")
LLAMA, QWEN3_8B, MATH_7B = (
    "meta-llama/Llama-3.2-1B-Instruct", "Qwen/Qwen3-8B", "Qwen/Qwen2.5-Math-7B",
)  # fmt: skip
PAPER_MODELS = {
    # Table 5
    "memory_r": ("Qwen/Qwen2.5-0.5B-Instruct", "tiiuae/Falcon3-1B-Instruct", LLAMA),
    "meds": ("Qwen/Qwen3-1.7B", QWEN3_8B, MATH_7B),  # Sec. 4.1, Table 1
}
# The one that further tables and figures use, and whose settings the small profiles scale down.
MAIN_MODEL = {"memory_r": PAPER_MODELS["memory_r"][0], "meds": MATH_7B}  # Table 2 of both papers
# How `paper` is launched (ours): file in paperlib/rl/launch, further flags of the command, GPUs
LAUNCH = {
    "memory_r": ("one_gpu.yaml", "", 1),
    "meds": ("eight_gpus_vllm.yaml", " --vllm", 8),  # 512 x 16 rollouts of up to 7,168 tokens
}
# The second is the same model from a file of 4-bit weights, for machines without the hub. SmolLM2
# hardly ever boxes an answer, so that DAPO and MEDS find no group to learn from: the third does.
LAPTOP_MODELS = (
    "HuggingFaceTB/SmolLM2-135M-Instruct", "smollm2-gguf", "Qwen/Qwen2.5-0.5B-Instruct",
)  # fmt: skip


def models(
    paper: str, profile: str, chosen: Sequence[str] | str | None = None
) -> tuple[str, ...]:
    """The models of a paper's Table 1 in a profile, or those of them that are ``chosen``."""
    check_choice("paper", paper, METHODS)
    check_choice("profile", profile, PROFILES)
    valid = {"paper": PAPER_MODELS[paper], "laptop": LAPTOP_MODELS}.get(profile, ("tiny",))
    if chosen is None:
        return valid[:1] if profile == "laptop" else valid
    names = chosen.split(",") if isinstance(chosen, str) else chosen
    names = tuple(name.strip() for name in names)
    for name in names:
        check_choice(f"model of {paper} in profile {profile}", name, valid)
    return names


def methods(paper: str, engine: str = "ours") -> tuple[str, ...]:
    """The rows of a paper's Table 1 that an engine can train: TRL has no entropy advantage."""
    check_choice("paper", paper, METHODS)
    check_choice("engine", engine, ENGINES)
    return tuple(m for m in METHODS[paper] if engine == "ours" or m != "GRPO w/ Entropy Adv")


def recipe(
    paper: str, method: str, profile: str, seed: int, preset: str = "paper",
    model: str | None = None, engine: str = "ours",
) -> RunConfig:
    """The RunConfig of one cell of the grid.

    ``model`` is one of :func:`models`, for ``laptop`` also another of LAPTOP_MODELS; None: the
    profile's main one. ``engine``: the base model, which is not trained, is of both.
    """
    check_choice(f"method of {paper}", method, methods(paper))
    check_choice("preset", preset, PRESETS)
    check_choice("engine", engine, ENGINES)
    if model is None:
        model = MAIN_MODEL[paper] if profile == "paper" else models(paper, profile)[0]
    models(paper, profile, [model])
    if method == "Base":
        seed, preset = 0, "paper"  # the same model whatever is asked for
    of_paper = model if profile == "paper" else MAIN_MODEL[paper]
    config = (_memory_r if paper == "memory_r" else _meds)(method, preset, of_paper)
    if profile != "paper":
        config = scale_down(config, profile, model)
    return replace(config, seed=seed, engine=engine if config.max_steps else "ours")


def _memory_r(method: str, preset: str, model: str) -> RunConfig:
    """Memory-R+ on GSM8K (arXiv 2504.02273, Table 4 and Sec. 4.1)."""
    length = 200  # Table 4: "max completion length 200"
    if preset == "paper":
        correctness, cosine, memory = b.Correctness(), b.CosineLength(length), MemoryR.paper()
    else:
        correctness, cosine = b.Correctness(rule="string"), b.CosineLength.released()
        # N and L of the released code
        memory = MemoryR.released("Memory-R" if method == "Memory-R" else "Memory-R+")
    formats = (b.IntegerAnswer, b.XmlCount, b.SoftFormat, b.StrictFormat)
    rewards = (correctness, *(term(preset) for term in formats))
    terms: tuple[Any, ...] = {
        "Base": (),
        "R1": rewards,
        "Cosine": (*rewards, cosine),
        "Memory-R": (*rewards, Exploit(memory)),  # eq. 4
        "Memory-R+": (*rewards, Exploit(memory), Explore(memory)),  # eqs. 4 and 5
    }[method]
    return RunConfig(
        paper="memory_r", method=method, profile="paper", seed=0, preset=preset, terms=terms,
        model=model, dataset="gsm8k-train",
        # "one in-context example per training sample" for Llama-3.2-1B; its tests are 0-shot
        prompt="tags-oneshot" if model == LLAMA else "tags",
        prompts_per_step=16,  # Table 4: batch 2 x accumulation 8, in prompts; Falcon3 1 x 16 (code)
        max_steps=467 if terms else 0,  # Table 4: 1 epoch, of 7,473 problems
        num_generations=16,  # Table 4
        # Table 4: 256. With the example some of Llama's prompts are longer; our loop leaves such
        # problems out, where TRL 0.14 cuts off a prompt's head, so they get room (ours).
        max_prompt_length=384 if model == LLAMA else 256,
        max_completion_length=length,  # Table 4
        temperature=0.9,  # not stated; the default of TRL 0.14, which the released code pins
        loss_type="grpo", epsilon=0.2, epsilon_high=0.2,  # not stated; TRL 0.14
        beta=0.04,  # not stated; TRL 0.14
        advantage_epsilon=1e-4,  # not stated; TRL 0.14
        mini_batches=1,  # not stated; TRL 0.14 makes one update per generation batch
        learning_rate=5e-6, lr_scheduler_type="cosine",  # Table 4
        warmup_steps=47,  # Table 4: warm-up ratio 0.1
        adam_beta1=0.9, adam_beta2=0.99, weight_decay=0.1, max_grad_norm=0.1,  # Table 4
        precision="bf16",  # Table 4
        save_steps=100,  # released code
    )


def _meds(method: str, preset: str, model: str) -> RunConfig:
    """MEDS and its baselines (arXiv 2604.11297, Sec. 4.1)."""
    length = 3072 if model == MATH_7B else 7168  # Qwen3
    dapo = RunConfig(
        paper="meds", method="DAPO", profile="paper", seed=0, preset=preset,
        terms=(b.Correctness(), b.Overlong(max_length=length, buffer=512)),  # buffer: released code
        # "DAPO-Math-17K and levels 3 to 5 of MATH"; 256 of them are our validation problems
        model=model, dataset="dapo-math-17k+math-3to5:256-", prompt="boxed",
        prompts_per_step=512, num_generations=16,  # "512 prompts x 16 rollouts"
        max_prompt_length=1024, max_completion_length=length,
        max_steps=100,  # Sec. 4.3 looks at steps up to about 100
        temperature=1.0, top_p=1.0,
        dynamic_sampling=True, max_generation_batches=10,  # bound: released code
        loss_type="dapo", epsilon=0.2, epsilon_high=0.28, beta=0.0,
        dual_clip=10.0 if preset == "released" else None,  # released code
        advantage_epsilon=1e-6,  # not stated; verl's
        mini_batches=32,  # mini-batch of 16 prompts
        learning_rate=1e-6, lr_scheduler_type="constant_with_warmup", warmup_steps=10,
        weight_decay=0.1, max_grad_norm=1.0,
        precision="bf16", gradient_checkpointing=True, micro_batch_tokens=16384,  # ours
        save_steps=25,  # not stated; ours
    )
    grpo = replace(
        dapo, method="GRPO", terms=(b.Correctness(),), dynamic_sampling=False, loss_type="grpo",
        epsilon_high=0.2, beta=1e-3, dual_clip=None,
    )
    if preset == "released":  # released code: mini-batch 32, other decay, no warm-up, 7,168 tokens
        grpo = replace(grpo, mini_batches=16, weight_decay=0.01, warmup_steps=0,
                       max_completion_length=7168)
    # "alpha 0.1, beta 0.2" but for Qwen3-8B; "the last 14 layers" for all models (Sec. 4.1)
    alpha, beta = (0.02, 0.04) if model == QWEN3_8B else (0.1, 0.2)
    meds = (Meds.paper if preset == "paper" else Meds.released)(alpha=alpha, beta=beta, last_n=14)
    return {
        "Base": replace(dapo, method="Base", terms=(), max_steps=0),
        "GRPO": grpo,
        "DAPO": dapo,
        # "alpha 0.4, kappa 2" (released code)
        "GRPO w/ Entropy Adv": replace(
            grpo, method="GRPO w/ Entropy Adv", entropy_alpha=0.4, entropy_kappa=2.0
        ),
        "MEDS": replace(dapo, method="MEDS", terms=(*dapo.terms, ClusterPenalty(meds))),
    }[method]


def eval_settings(
    paper: str, profile: str, split: str, *, greedy: bool = False, model: str | None = None
) -> EvalSettings:
    """How checkpoints are evaluated: ``split`` is ``test`` or ``validation``.

    Temperature 1 and top-p 1, pass@k from n samples (MEDS Sec. 4.1: n = 128, "maximum tokens as in
    training"), or greedy. The Memory-R+ paper's evaluation sets no sampling parameter (see its
    notes); both are reported. It allows 32,768 tokens (code) to models trained to write 200: here
    2,048, since what is longer does not end, and is counted as truncated. It samples once; 4
    samples have the same expectation and half of the spread.
    """
    check_choice("split", split, ("test", "validation"))
    config = recipe(paper, "Base", profile, 0, model=model)
    of_test, of_validation = {
        "smoke": (4, 4), "tiny": (16, 8), "laptop": (4, 2),
        "paper": (4, 4) if paper == "memory_r" else (128, 8),
    }[profile]  # fmt: skip
    samples = 1 if greedy else of_test if split == "test" else of_validation
    task = {
        "smoke": "tiny_smoke", "tiny": f"tiny_{split}", "laptop": f"paperlib_laptop_{split}",
        "paper": TASKS[paper][split],
    }[profile]  # fmt: skip
    real = profile in ("laptop", "paper")
    length = config.max_completion_length
    if real and paper == "memory_r":
        length = 2048 if profile == "paper" else 256
    return EvalSettings(
        task=task, samples=samples, temperature=0.0 if greedy else 1.0, top_p=1.0,
        max_completion_length=length, seed=0 if split == "test" else 1,
        prompt=config.prompt.removesuffix("-oneshot"),  # tests are 0-shot
        batch_prompts=max(1, (64 if real else 256) // samples),
        # Sec. 4.1 of Memory-R+: LightEval's extractive match
        grading="extractive" if real and paper == "memory_r" else "math",
    )
