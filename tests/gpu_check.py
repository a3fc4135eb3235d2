"""What a machine with a GPU does with a real model, in one command and a fixed number of minutes.

    python tests/gpu_check.py --minutes 10 --out build/gpu-check

SmolLM2-135M on GSM8K with the laptop profile's settings, but as many steps as fit, at a constant
learning rate: R1, Memory-R+, DAPO and MEDS get equal shares of the time. ``results.json`` holds

    parity   |log ratio| of the sampler's log-probabilities to the training pass's, by precision,
             and of the device's to the CPU's
    base, methods   greedy accuracy, tokens per second, peak memory, the first update's ratio

and is written after each part. The runs keep checkpoints, so that the same command on the same
folder goes on where a cut left off.
"""

import argparse
import resource
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from paperlib.environment import environment_record
from paperlib.experiments.recipes import recipe
from paperlib.files import read_json, read_jsonl, write_json_atomic
from paperlib.rl.checkpoint import newest_checkpoint
from paperlib.rl.config import RunConfig
from paperlib.rl.logps import completion_logps
from paperlib.rl.policy import end_tokens, load_policy, pad_token, resolve_device
from paperlib.rl.sampling import Samples, sample_groups
from paperlib.rl.train import train
from paperlib.rl.update import autocast
from paperlib.tasks.data import Problem, load_problems
from paperlib.tasks.grading import grade_all
from paperlib.tasks.prompts import build_prompt

METHODS = {"R1": "memory_r", "Memory-R+": "memory_r", "DAPO": "meds", "MEDS": "meds"}
SAVE_STEPS = 5


class OutOfTime(BaseException):
    """No Exception: the loop goes on after those of a watch."""


def settings(method: str, base: Path, profile: str, precision: str) -> RunConfig:
    """The profile's recipe of a method, for as many steps as there is time."""
    return replace(
        recipe(METHODS[method], method, profile, 0), model=str(base), precision=precision,
        max_steps=100_000, save_steps=SAVE_STEPS, warmup_steps=SAVE_STEPS,
        lr_scheduler_type="constant_with_warmup",
    )


def sample(model: Any, tokenizer: Any, problems: list[Problem], config: RunConfig, n: int,
           temperature: float) -> Samples:
    return sample_groups(
        model, [build_prompt(tokenizer, p.question, config.prompt) for p in problems], n,
        max_completion_length=config.max_completion_length, temperature=temperature, top_p=1.0,
        seed=0,
        eos_token_ids=end_tokens(model, tokenizer), pad_token_id=pad_token(tokenizer),
    )


def greedy_accuracy(folder: Path, problems: list[Problem], config: RunConfig, device: Any) -> float:
    model, tokenizer = load_policy(folder, device)
    ids = sample(model, tokenizer, problems, config, 1, 0).completion_ids
    texts = tokenizer.batch_decode(ids, skip_special_tokens=True)
    return sum(grade_all(texts, [p.answer for p in problems])) / len(problems)


def parity(
    base: Path, problems: list[Problem], config: RunConfig, device: torch.device
) -> dict[str, Any]:
    """Largest and mean |log ratio| of one batch's tokens, the training pass over the sampler."""
    model, tokenizer = load_policy(base, device)
    samples = sample(model, tokenizer, problems[:4], config, 8, config.temperature)
    rows = [prompt for prompt in samples.prompt_ids for _ in range(8)]
    sampled, out, found = torch.cat(samples.logps), {}, {}
    for name, precision in (("fp32", "fp32"), ("bf16", "bf16"), ("cpu", "fp32")):
        if name == "cpu":
            model = model.cpu()
        with torch.no_grad(), autocast(replace(config, precision=precision), model.device):
            logps, _, mask = completion_logps(
                model, rows, samples.completion_ids, temperature=config.temperature
            )
        found[name] = logps[mask].cpu()
    for name, one, other in (
        ("fp32 training pass over sampler", "fp32", sampled),
        ("bf16 training pass over sampler", "bf16", sampled),
        ("fp32 on this device over fp32 on the CPU", "fp32", found["cpu"]),
    ):
        difference = (found[one] - other).abs()
        out[name] = {"max": float(difference.max()), "mean": float(difference.mean())}
    return out


def peak_memory_gib(device: torch.device) -> float:
    """Of the GPU since the last reset; of the process since its start on the CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**30
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def run(config: RunConfig, folder: Path, device: torch.device, seconds: float) -> dict[str, Any]:
    """Train for about ``seconds``, up to a checkpoint; what the steps cost."""
    end = time.monotonic() + seconds
    newest = newest_checkpoint(folder, SAVE_STEPS)
    start = int(newest.name) if newest else 0

    def watch(rows: list[dict[str, float]]) -> list[str]:
        step = rows[-1]["step"]
        if time.monotonic() > end and step > start and step % SAVE_STEPS == 0:
            raise OutOfTime
        return []

    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    with suppress(OutOfTime):
        train(config, folder, device=str(device), progress=False, watch=watch)
    steps = [row for row in read_jsonl(folder / "metrics.jsonl") if "length" in row]
    if not steps:
        return {"steps": 0}
    later = steps[1:] or steps  # the first step warms up
    rows = config.num_generations

    def per_second(groups: str, part: str) -> float:
        tokens = sum(row[groups] * rows * row["length"] for row in later)
        return round(tokens / sum(row[f"seconds/{part}"] for row in later), 1)

    return {
        "steps": int(steps[-1]["step"]), "peak_memory_gib": round(peak_memory_gib(device), 2),
        "first_update_ratio_max": steps[0]["ratio_max"],
        "sampled_tokens_per_second": per_second("groups_drawn", "sample"),
        "trained_tokens_per_second": per_second("groups_kept", "update"),
        "seconds_per_step": {
            part: round(sum(row[f"seconds/{part}"] for row in later) / len(later), 3)
            for part in ("sample", "terms", "update")
        },
        "training_accuracy": [round(row["accuracy"], 3) for row in steps],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10, help="of everything together")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--model", default="smollm2-gguf", help="tiny, a folder, a hub id ...")
    options = parser.parse_args()
    began = time.monotonic()
    device = resolve_device(options.device)
    tiny = options.model == "tiny"
    profile = "smoke" if tiny else "laptop"
    bf16 = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    base, path = options.out / "base", options.out / "results.json"
    configs = {m: settings(m, base, profile, "bf16" if bf16 else "fp32") for m in METHODS}
    problems = load_problems("tiny-smoke" if tiny else "gsm8k-test:0-64")
    for config in configs.values():
        load_problems(config.dataset)  # what is missing is told before anything is computed
    results = read_json(path) if path.exists() else {"methods": {}}

    if not (base / "config.json").exists():  # read a GGUF once only
        model, tokenizer = load_policy(options.model)
        scratch = options.out / ".base"
        model.save_pretrained(scratch)
        tokenizer.save_pretrained(scratch)
        scratch.rename(base)  # a cut leaves no half of it
    results |= {"machine": environment_record(str(device)), "model": options.model}
    if "base" not in results:
        results["base"] = {
            paper: greedy_accuracy(base, problems, configs[method], device)
            for method, paper in METHODS.items() if method in ("R1", "DAPO")
        }
        results["parity"] = parity(base, problems, configs["R1"], device)
        write_json_atomic(path, results)
    spent = time.monotonic() - began  # as much again is kept for the evaluations at the end
    for left, (method, config) in zip((4, 3, 2, 1), configs.items(), strict=True):
        share = (60 * options.minutes - spent - (time.monotonic() - began)) / left
        folder = options.out / "runs" / method
        results["methods"][method] = run(config, folder, device, share)
        write_json_atomic(path, results)
    for method, config in configs.items():
        checkpoint = newest_checkpoint(options.out / "runs" / method, SAVE_STEPS)
        if checkpoint:
            results["methods"][method]["greedy_accuracy"] = greedy_accuracy(
                checkpoint, problems, config, device
            )
        write_json_atomic(path, results)
    print(path.read_text())


if __name__ == "__main__":
    main()
