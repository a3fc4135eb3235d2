"""What a machine with a GPU does, in three parts; each writes what it found to one JSON file.

    python tests/benchmarks/gpu.py check --out build/gpu-check.json     make gpu-check
    python tests/benchmarks/gpu.py parity --out build/gpu-parity.json   make gpu-parity
    python tests/benchmarks/gpu.py bench --out build/gpu-bench.json     make gpu-bench

A result is written as soon as it is there, so that a cut leaves what came before. With ``--device
cpu --small`` each part shows what it does, in the tiny world. NOT RUN ON A GPU YET.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from paperlib.environment import environment_record
from paperlib.experiments.recipes import recipe
from paperlib.files import read_json, read_jsonl, write_json_atomic
from paperlib.rl import train as ours
from paperlib.rl import trl_engine
from paperlib.rl.checkpoint import newest_checkpoint
from paperlib.rl.config import RunConfig
from paperlib.rl.logps import completion_logps
from paperlib.rl.policy import end_tokens, load_policy, pad_token, resolve_device
from paperlib.rl.sampling import Samples, sample_groups
from paperlib.rl.update import autocast
from paperlib.tasks.data import load_problems
from paperlib.tasks.grading import grade_all
from paperlib.tasks.prompts import build_prompt
from tests.trl_world import loss_parity

Found = dict[str, Any]
ENGINES = {"ours": ours, "trl": trl_engine}
METHODS = {"R1": "memory_r", "Memory-R+": "memory_r", "DAPO": "meds", "MEDS": "meds"}
SAVE_STEPS = 5
QWEN = Qwen2Config(  # the shape of Qwen2.5-0.5B; speed needs no trained weights
    vocab_size=151936, hidden_size=896, intermediate_size=4864, num_hidden_layers=24,
    num_attention_heads=14, num_key_value_heads=2, rope_theta=1e6, tie_word_embeddings=True,
)  # fmt: skip
# bytes/s of memory, dense bf16 FLOP/s; makers' data sheets
CEILINGS = {
    "H100": (3.35e12, 989e12), "H200": (4.8e12, 989e12), "A100-SXM4-80GB": (2.04e12, 312e12),
    "L4": (0.3e12, 121e12),
}  # fmt: skip


class OutOfTime(BaseException):
    """No Exception: the loop goes on after those of a watch."""


def precision(device: torch.device) -> str:
    bf16 = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    return "bf16" if bf16 else "fp32"


def costs(folder: Path, config: RunConfig, device: torch.device) -> Found:
    """What the steps of a run cost, medians, the first left out; and the GPU's peak memory since
    this was asked before."""
    steps = [row for row in read_jsonl(folder / "metrics.jsonl") if "length" in row]
    if not steps:
        return {"steps": 0}
    peak, later = None, steps[1:] or steps
    if device.type == "cuda":
        peak = round(torch.cuda.max_memory_allocated(device) / 2**30, 2)
        torch.cuda.reset_peak_memory_stats(device)
    seconds = {part: statistics.median(row[f"seconds/{part}"] for row in later)
               for part in ("sample", "terms", "update")}  # fmt: skip

    def speed(groups: str, part: str) -> float:
        tokens = [row[groups] * config.num_generations * row["length"] for row in later]
        return round(sum(tokens) / len(later) / seconds[part], 1)

    return {
        "steps": int(steps[-1]["step"]), "peak_memory_gib": peak, "seconds": seconds,
        "first_update_ratio_max": steps[0].get("ratio_max"),
        "sampled_tokens_per_second": speed("groups_drawn", "sample"),
        "trained_tokens_per_second": speed("groups_kept", "update"),
        "accuracy": [round(row["accuracy"], 3) for row in steps],
    }  # fmt: skip


def on_disk(base: Path, load: Callable[[], tuple[Any, Any]]) -> str:
    """The folder of a model and its tokenizer, made once: a GGUF is slow to read."""
    if not base.exists():
        scratch = base.with_name("scratch")
        for part in load():
            part.save_pretrained(scratch)
        scratch.rename(base)  # a cut leaves no half of it
    return str(base)


def short_run(config: RunConfig, folder: Path, device: torch.device) -> Found:
    run = folder / f"{config.method}-{config.engine}-{time.time_ns()}"
    ENGINES[config.engine].train(config, run, device=str(device), progress=False)
    return costs(run, config, device)


# -- check: SmolLM2-135M on GSM8K with the laptop profile ------------------------------------------


def check(found: Found, save: Callable[[], None], options: Any, device: torch.device) -> None:
    """Equal shares of the time for four methods: greedy accuracy, tokens per second, peak memory,
    first ratio; and how far sampler, training pass, precisions and the CPU are apart. The runs
    keep checkpoints: the same command goes on where a cut left off."""
    began, folder = time.monotonic(), options.out.with_suffix("")
    model = on_disk(folder / "base", lambda: load_policy(
        "tiny" if options.small else "smollm2-gguf"
    ))  # fmt: skip
    configs = {
        method: replace(
            recipe(paper, method, "smoke" if options.small else "laptop", 0), model=model,
            max_steps=100_000, save_steps=SAVE_STEPS, warmup_steps=SAVE_STEPS,
            lr_scheduler_type="constant_with_warmup", precision=precision(device),
        )
        for method, paper in METHODS.items()
    }
    data = "tiny-smoke" if options.small else "gsm8k-test:0-64"
    for config in configs.values():
        load_problems(config.dataset)  # what is missing is told before anything is computed
    if "parity" not in found:
        found["base"] = {m: greedy_accuracy(None, data, configs[m], device) for m in ("R1", "DAPO")}
        found["parity"] = sampler_parity(data, configs["R1"], device)
        save()
    spent = time.monotonic() - began  # as much again is kept for the evaluations at the end
    for left, (method, config) in zip((4, 3, 2, 1), configs.items(), strict=True):
        share = (60 * options.minutes - spent - (time.monotonic() - began)) / left
        found[method] = train_for(share, config, folder / method, device)
        save()
    for method, config in configs.items():
        if checkpoint := newest_checkpoint(folder / method, SAVE_STEPS):
            found[method]["greedy_accuracy"] = greedy_accuracy(checkpoint, data, config, device)
            save()


def sample(model: Any, tokenizer: Any, problems: list, config: RunConfig, n: int, temperature: float
           ) -> Samples:  # fmt: skip
    return sample_groups(
        model, [build_prompt(tokenizer, p.question, config.prompt) for p in problems], n,
        max_completion_length=config.max_completion_length, temperature=temperature, top_p=1.0,
        seed=0,
        eos_token_ids=end_tokens(model, tokenizer), pad_token_id=pad_token(tokenizer),
    )


def greedy_accuracy(checkpoint: Path | None, data: str, config: RunConfig, device: Any) -> float:
    model, tokenizer = load_policy(checkpoint or config.model, device)
    problems = load_problems(data)
    ids = sample(model, tokenizer, problems, config, 1, 0).completion_ids
    texts = tokenizer.batch_decode(ids, skip_special_tokens=True)
    return sum(grade_all(texts, [p.answer for p in problems])) / len(problems)


def sampler_parity(data: str, config: RunConfig, device: torch.device) -> Found:
    """Largest and mean |log ratio| of one batch's tokens."""
    model, tokenizer = load_policy(config.model, device)
    samples = sample(model, tokenizer, load_problems(data)[:4], config, 8, config.temperature)
    rows, logps = [prompt for prompt in samples.prompt_ids for _ in range(8)], {}
    for name, kind, place in (("fp32", "fp32", device), ("bf16", "bf16", device),
                              ("CPU", "fp32", "cpu")):  # fmt: skip
        model.to(place)
        with torch.no_grad(), autocast(replace(config, precision=kind), model.device):
            values, _, mask = completion_logps(
                model, rows, samples.completion_ids, temperature=config.temperature
            )
        logps[name] = values[mask].cpu()
    apart = {"fp32 over sampler": logps["fp32"] - torch.cat(samples.logps), "bf16 over sampler":
             logps["bf16"] - torch.cat(samples.logps), "fp32 over CPU": logps["fp32"] - logps["CPU"]
             }  # fmt: skip
    return {name: {"max": float(difference.abs().max()), "mean": float(difference.abs().mean())}
            for name, difference in apart.items()}  # fmt: skip


def train_for(seconds: float, config: RunConfig, folder: Path, device: torch.device) -> Found:
    """Train for about so long, up to a checkpoint; what the steps cost."""
    end, newest = time.monotonic() + seconds, newest_checkpoint(folder, SAVE_STEPS)
    start = int(newest.name) if newest else 0

    def watch(rows: list[dict[str, float]]) -> list[str]:
        step = rows[-1]["step"]
        if time.monotonic() > end and step > start and step % SAVE_STEPS == 0:
            raise OutOfTime
        return []

    with suppress(OutOfTime):
        ours.train(config, folder, device=str(device), progress=False, watch=watch)
    return costs(folder, config, device)


# -- parity: both engines -----------------------------------------------------------------------


def parity(found: Found, save: Callable[[], None], options: Any, device: torch.device) -> None:
    """Losses and gradients of a fixed batch in fp32 and bf16, relative; then smoke runs."""
    folder = options.out.with_suffix("")
    for kind in ("fp32", "bf16"):
        for loss_type in ("grpo", "dapo", "dr_grpo"):
            for beta in (0.0, 0.04):
                pairs = loss_parity(loss_type, beta, folder, device.type, kind)
                worst = dict(zip(("loss", "gradient"), map(max, *pairs), strict=True))
                found[f"{kind} {loss_type} beta {beta}"] = worst
    save()
    for method in ("GRPO", "MEDS"):
        for engine in ENGINES:
            base = recipe("meds", method, "smoke", 0, engine=engine)
            config = replace(base, max_steps=options.steps, save_steps=options.steps)
            found[f"{method} {engine}"] = short_run(config, folder, device)
            save()


# -- bench: a training step in the shape of Qwen2.5-0.5B ---------------------------------------


def bench(found: Found, save: Callable[[], None], options: Any, device: torch.device) -> None:
    """Seconds and tokens per second of our step, shares of the card's ceilings, what both papers'
    rewards add to it, and TRL's engine on the same 8 x 16 rollouts. Weights are random, so that
    every completion is cut, and memories as full as a few steps make them."""
    folder = options.out.with_suffix("")
    torch.manual_seed(0)
    model, tokenizer = load_policy("tiny")
    base = on_disk(folder / "base", lambda: (
        model if options.small else Qwen2ForCausalLM(QWEN), tokenizer
    ))  # fmt: skip
    prompts, group, length = (2, 4, 8) if options.small else (8, 16, 200)
    for method, engine in (("GRPO", "ours"), ("MEDS", "ours"), ("Memory-R+", "ours"),
                           ("GRPO", "trl")):  # fmt: skip
        config = replace(
            recipe(METHODS.get(method, "meds"), method, "tiny", 0), engine=engine, model=base,
            prompts_per_step=prompts, num_generations=group, max_completion_length=length,
            mini_batches=1, beta=0.0, dynamic_sampling=False, micro_batch_tokens=16384,
            max_steps=options.steps, save_steps=options.steps, precision=precision(device),
        )
        found[f"{method} {engine}"] = short_run(config, folder, device)
        save()
    whole = {name: sum(found[name]["seconds"].values()) for name in found if name != "machine"}
    found["seconds of a step over GRPO's, ours"] = {
        name: seconds / whole["GRPO ours"] for name, seconds in whole.items()
    }
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else ""
    for bandwidth, rate in (c for card, c in CEILINGS.items() if card in name):
        weights, grpo = 494e6, found["GRPO ours"]
        found["shares of ceilings"] = {
            # all float32 weights are read at every token; 6 FLOP per weight and token
            "memory bandwidth": 4 * weights * length / grpo["seconds"]["sample"] / bandwidth,
            "bf16 rate": 6 * weights * grpo["trained_tokens_per_second"] / rate,
        }
    save()


def main(arguments: list[str] | None = None) -> Found:
    parts = {part.__name__: part for part in (check, parity, bench)}
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=parts)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--small", action="store_true", help="the tiny world, to try this")
    parser.add_argument("--minutes", type=float, default=10, help="of the whole check")
    parser.add_argument("--steps", type=int, default=8, help="of each short run")
    options = parser.parse_args(arguments)
    device = resolve_device(options.device)
    found = read_json(options.out) if options.part == "check" and options.out.exists() else {}
    found["machine"] = environment_record(str(device))
    parts[options.part](found, lambda: write_json_atomic(options.out, found), options, device)
    print(json.dumps(found, indent=1))
    return found


if __name__ == "__main__":
    main()
