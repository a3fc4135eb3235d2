"""Both methods' training step on a GPU: throughput, memory, overheads, TRL beside it.

    python tests/benchmarks/gpu_bench.py --out build/gpu-bench.json

A Qwen2.5-0.5B with random weights (speed needs no others), trained in bf16 autocast over float32
weights, 8 x 16 rollouts, prompts of 256 and completions of 200 tokens, memories filled before.
Each part is written when it is measured, so that a cut leaves what came before.

THIS WAS NOT RUN ON A GPU YET. On the CPU a tiny shape of it is tested (tests/test_benchmarks.py).
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from memories import full_memory
from rollout_batches import rollouts
from transformers import Qwen2Config, Qwen2ForCausalLM

from paperlib.environment import environment_record
from paperlib.experiments.recipes import recipe
from paperlib.files import write_json_atomic
from paperlib.methods.meds import ClusterPenalty, Meds
from paperlib.methods.memory_r import Exploit, Explore, MemoryR
from paperlib.methods.rollouts import Rollouts
from paperlib.rl.collect import Batch
from paperlib.rl.policy import load_policy, resolve_device
from paperlib.rl.sampling import sample_groups
from paperlib.rl.train import make_optimizer
from paperlib.rl.update import update

# of Qwen2.5-0.5B's config.json
QWEN = {
    "vocab_size": 151936, "hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24,
    "num_attention_heads": 14, "num_key_value_heads": 2, "max_position_embeddings": 32768,
    "rope_theta": 1000000.0, "rms_norm_eps": 1e-6, "tie_word_embeddings": True,
}
SMALL = {
    "vocab_size": 512, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 4,
    "num_attention_heads": 4, "num_key_value_heads": 2, "tie_word_embeddings": True,
}
# bytes/s of memory, dense bf16 FLOP/s; makers' data sheets
CEILINGS = {
    "H100": (3.35e12, 989e12), "H200": (4.8e12, 989e12), "A100-SXM4-80GB": (2.04e12, 312e12),
    "L4": (0.3e12, 121e12),
}  # fmt: skip
DIM = 384


class World:
    """Model, prompts, optimizer, and terms whose memories are full."""

    def __init__(self, shape: dict[str, Any], sizes: dict[str, int], device: torch.device) -> None:
        torch.manual_seed(0)
        self.sizes, self.device = sizes, device
        self.model = Qwen2ForCausalLM(Qwen2Config(**shape)).to(device).eval()
        bf16 = device.type == "cuda"
        self.config = replace(
            recipe("meds", "DAPO", "tiny", 0), precision="bf16" if bf16 else "fp32",
            prompts_per_step=sizes["prompts"], num_generations=sizes["group"], mini_batches=1,
            max_completion_length=sizes["completion"], micro_batch_tokens=sizes["micro_batch"],
            learning_rate=0.0,
        )
        self.optimizer = make_optimizer(self.config, self.model)
        generator = torch.Generator().manual_seed(0)
        self.prompts = torch.randint(
            5, shape["vocab_size"], (sizes["prompts"], sizes["prompt"]), generator=generator
        ).tolist()

    def sample(self, reading: str | None = None, bf16: bool = False) -> Any:
        """As the loop samples: with the float32 weights, unless ``bf16`` (autocast)."""
        with torch.autocast(self.device.type, torch.bfloat16, enabled=bf16):
            return sample_groups(
                self.model, self.prompts, self.sizes["group"], temperature=1.0, top_p=1.0,
                max_completion_length=self.sizes["completion"], seed=0,
                eos_token_ids=(), pad_token_id=0, layer_logits=reading,
            )

    def rollouts(self, step: int, logits: np.ndarray | None = None) -> Rollouts:
        group, n = self.sizes["group"], self.sizes["prompts"] * self.sizes["group"]
        rng = np.random.default_rng(step)
        questions = [f"q{i}" for i in range(self.sizes["prompts"]) for _ in range(group)]
        return rollouts(
            [f"a{step}-{i}" for i in range(n)], step=step, problem_ids=questions,
            questions=questions, accuracy=rng.integers(0, 2, n), layer_logits=logits,
            num_generations=group,
        )

    def batch(self, samples: Any) -> Batch:
        prompts = [p for p in self.prompts for _ in range(self.sizes["group"])]
        return Batch(self.rollouts(1), prompts, samples.completion_ids, samples.logps)

    def seconds(self, function: Callable[[], Any], repeats: int) -> float:
        """Median wall seconds; the device is waited for."""
        found = []
        for _ in range(repeats + 1):
            self._wait()
            began = time.perf_counter()
            function()
            self._wait()
            found.append(time.perf_counter() - began)
        return statistics.median(found[1:])

    def _wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


class Vectors:
    """An encoder that makes up a text's vector."""

    def encode(self, texts: list[str]) -> torch.Tensor:
        vectors = torch.randn(len(texts), DIM, generator=torch.Generator().manual_seed(0))
        return torch.nn.functional.normalize(vectors, dim=1)


def steps(world: World, repeats: int) -> dict[str, Any]:
    """Sampling and update of one step, in seconds and tokens per second, and the first ratio."""
    sizes, out = world.sizes, {}
    tokens = sizes["prompts"] * sizes["group"] * sizes["completion"]
    if world.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(world.device)
    samples = world.sample()
    advantages = torch.randn(len(samples.completion_ids))
    first = update(world.config, world.model, None, world.optimizer, world.batch(samples),
                   advantages)
    out["first update, ratio_max - 1"] = first["ratio_max"] - 1
    for name, work in (
        ("sampling", world.sample),
        ("sampling in bf16, which the loop does not do", lambda: world.sample(bf16=True)),
        ("training", lambda: update(world.config, world.model, None, world.optimizer,
                                    world.batch(samples), advantages)),
    ):
        seconds = world.seconds(work, repeats)
        out[name] = {"seconds": seconds, "tokens_per_second": tokens / seconds}
    if world.device.type == "cuda":
        out["peak_memory_gib"] = torch.cuda.max_memory_allocated(world.device) / 2**30
    out["share_of_ceilings"] = _shares(world, out)
    return out


def _shares(world: World, found: dict[str, Any]) -> dict[str, float] | None:
    """Sampling against the memory's bandwidth (all weights are read at every token), training
    against the matrix rate (6 FLOP per weight and token); None for an unknown card."""
    if world.device.type != "cuda":
        return None
    name = torch.cuda.get_device_name(world.device)
    known = next((c for card, c in CEILINGS.items() if card in name), None)
    if known is None:
        return None
    weights, sizes = sum(p.numel() for p in world.model.parameters()), world.sizes
    bytes_read = 4 * weights * sizes["completion"]  # float32 weights
    tokens = sizes["prompts"] * (sizes["prompt"] + sizes["group"] * sizes["completion"])
    return {
        "sampling, of memory bandwidth": bytes_read / found["sampling"]["seconds"] / known[0],
        "training, of bf16 matrix rate":
            6 * weights * tokens / found["training"]["seconds"] / known[1],
    }


def overheads(world: World, step_seconds: float, repeats: int) -> dict[str, float]:
    """What Memory-R+ (encoder excluded) and MEDS add to a step, in percent of it."""
    n, each = world.sizes["stored_queries"], world.sizes["stored_responses"]
    settings = MemoryR.paper(max_queries=n, explore_warmup=0)
    terms: list[Any] = [Exploit(settings), Explore(settings)]
    unit = torch.nn.functional.normalize
    for term in terms:
        term.encoder = Vectors()
        term.memory = full_memory(unit(torch.randn(n, DIM), dim=1),
                                  unit(torch.randn(n, each, DIM), dim=2), each)
    rollouts = world.rollouts(2)
    memory_r = world.seconds(lambda: [term(rollouts) for term in terms], repeats)
    plain = world.seconds(world.sample, repeats)
    traced = world.seconds(lambda: world.sample("normed"), repeats)
    last = world.sample("normed").layer_logits[:, -1].numpy()
    penalty = ClusterPenalty(Meds.paper())
    for _ in range(world.sizes["visits"]):
        penalty(world.rollouts(2, last + 0.01 * np.random.default_rng(0).normal(size=last.shape)))
    clusters = world.seconds(lambda: penalty(world.rollouts(2, last)), repeats)
    return {
        "Memory-R+, percent": 100 * memory_r / step_seconds,
        "MEDS, percent": 100 * (traced - plain + clusters) / step_seconds,
        "of it clusters, percent": 100 * clusters / step_seconds,
    }


def against_trl(world: World, repeats: int) -> dict[str, float]:
    """TRL's GRPOTrainer with ``generate`` on the same shape; end tokens are switched off."""
    from datasets import Dataset
    from transformers import TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    sizes, tokenizer = world.sizes, load_policy("tiny")[1]
    times: list[float] = []

    class Clock(TrainerCallback):
        def on_step_begin(self, *args, **kwargs):
            world._wait()
            self.began = time.perf_counter()

        def on_step_end(self, *args, **kwargs):
            world._wait()
            times.append(time.perf_counter() - self.began)

    words = "word " * sizes["prompt"]
    text = tokenizer.decode(tokenizer.encode(words)[: sizes["prompt"]])
    rows = sizes["prompts"] * sizes["group"]
    with tempfile.TemporaryDirectory() as folder:
        args = GRPOConfig(
            output_dir=folder, max_steps=repeats + 1, learning_rate=0.0, report_to="none",
            num_generations=sizes["group"], max_completion_length=sizes["completion"],
            per_device_train_batch_size=max(1, rows // 8), gradient_accumulation_steps=8,
            steps_per_generation=8, beta=0.0, loss_type="dapo", temperature=1.0,
            bf16=world.device.type == "cuda", use_cpu=world.device.type == "cpu",
            gradient_checkpointing=False, save_strategy="no", disable_tqdm=True,
            generation_kwargs={"min_new_tokens": sizes["completion"]},
        )  # fmt: skip
        GRPOTrainer(
            world.model, args=args, processing_class=tokenizer, callbacks=[Clock()],
            reward_funcs=[lambda completions, **_: [0.0, 1.0] * (len(completions) // 2)],
            train_dataset=Dataset.from_list([{"prompt": text}] * 64),
        ).train()
    return {"seconds": statistics.median(times[1:])}


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--small", action="store_true", help="a shape for the CPU, to try this")
    options = parser.parse_args(arguments)
    device = resolve_device(options.device)
    sizes = {"prompts": 8, "group": 16, "prompt": 256, "completion": 200, "micro_batch": 16384,
             "stored_queries": 7473, "stored_responses": 16, "visits": 4}
    if options.small:
        sizes = {"prompts": 2, "group": 4, "prompt": 8, "completion": 6, "micro_batch": 256,
                 "stored_queries": 20, "stored_responses": 2, "visits": 2}
    found: dict[str, Any] = {"machine": environment_record(str(device)), "sizes": sizes}
    world = World(SMALL if options.small else QWEN, sizes, device)
    found["ours"] = steps(world, options.repeats)
    write_json_atomic(options.out, found)
    whole = sum(found["ours"][part]["seconds"] for part in ("sampling", "training"))
    found["overheads"] = overheads(world, whole, options.repeats)
    write_json_atomic(options.out, found)
    found["trl"] = against_trl(world, options.repeats)
    found["ours over TRL"] = whole / found["trl"]["seconds"]
    write_json_atomic(options.out, found)
    print(options.out.read_text())
    return found


if __name__ == "__main__":
    main()
