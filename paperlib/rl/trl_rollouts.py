"""Completions that TRL sampled: what the reward terms get to know of them, in TRL's own trainer or
in ours; and, in ours, which are trained on and how they are dealt out to processes."""

from typing import Any

import numpy as np
import torch
from accelerate.utils import gather_object
from torch import Tensor

from paperlib.methods.rollouts import RewardTerm
from paperlib.rl.config import RunConfig
from paperlib.rl.layer_logits import LayerTrace, answer_token
from paperlib.rl.objective import groups_without_spread
from paperlib.rl.padding import left_padded
from paperlib.rl.policy import end_tokens, in_eval_mode
from paperlib.tasks.data import Problem
from paperlib.tasks.grading import grade_all

# columns of a generation batch in TRL's names, and whether they are padded on the left
COLUMNS = {
    "prompt_ids": True, "prompt_mask": True, "completion_ids": False, "completion_mask": False,
    "old_per_token_logps": False, "ref_per_token_logps": False,
}  # fmt: skip


def graded(
    trainer: Any, prompts: list, completion_ids: list[list[int]], problems: list[Problem],
    asking: RewardTerm | None,
) -> list[tuple]:
    """Of each completion what :func:`paperlib.rl.collect.make_rollouts` takes: problem, text,
    length, whether it is cut, accuracy and, if a term is ``asking`` for them, layer logits."""
    # decoded here, because a trainer that parses messages may cut the reasoning out of them
    texts = trainer.processing_class.batch_decode(completion_ids, skip_special_tokens=True)
    ends = end_tokens(trainer.model, trainer.processing_class)
    truncated = [not ids or ids[-1] not in ends for ids in completion_ids]
    questions, golds = [p.question for p in problems], [p.answer for p in problems]
    right = [float(verdict) for verdict in grade_all(texts, golds, questions=questions)]
    layer_logits = [None] * len(texts)
    if asking:
        layer_logits = wrong_answers(trainer, asking.settings, prompts, completion_ids, texts,
                                     right)  # fmt: skip
    return list(zip(
        problems, texts, map(len, completion_ids), truncated, right, layer_logits, strict=True
    ))


@torch.no_grad()
def wrong_answers(
    trainer: Any, settings: Any, prompts: list, completion_ids: list[list[int]],
    texts: list[str], right: list[float],
) -> np.ndarray:
    """``[n, layers]`` float32: layer logits at the answers of the wrong rollouts, else NaN, as the
    ``settings`` of the asking term say.

    Equal to what :func:`paperlib.rl.sampling.sample_groups` records, which TRL does not: by a
    forward pass over each prompt and completion up to the answer, in eval mode.
    """
    model, tokenizer, size = (
        trainer.model, trainer.processing_class, trainer.args.per_device_train_batch_size
    )
    layers = model.config.get_text_config().num_hidden_layers
    out = np.full((len(texts), layers), np.nan, dtype=np.float32)
    places = [
        None if right[row] else answer_token(tokenizer, ids, texts[row], settings.position)
        for row, ids in enumerate(completion_ids)
    ]
    wrong = [row for row, at in enumerate(places) if at is not None]
    head, prompt_ids = model.get_output_embeddings(), trainer._tokenize_prompts(prompts)[0]
    # the trace keeps the last position: pad on the left
    with in_eval_mode(model), trainer.accelerator.autocast(), LayerTrace(
        model, settings.logit
    ) as trace:
        # where the model is sharded, every process must make the same number of passes
        for start in range(0, max(gather_object([len(wrong)])), size):
            rows = wrong[start : start + size]
            before = [prompt_ids[row] + completion_ids[row][: places[row]] for row in rows]
            input_ids, mask, positions = left_padded(before or prompt_ids[:1], 0, model.device)
            # the decoder alone: TRL replaces the forward of the whole model, and its vocabulary
            # product is not needed
            model.base_model(
                input_ids=input_ids, attention_mask=mask, position_ids=positions, use_cache=False
            )
            tokens = torch.tensor([completion_ids[row][places[row]] for row in rows] or [0])
            with trainer._dist.gather_params([head.weight]):
                logits = trace.logits(tokens.to(model.device)).cpu().numpy()
            out[rows] = logits[: len(rows)]
    return out


def gathered(accelerator: Any, found: dict[str, Tensor]) -> dict[str, Tensor]:
    """The columns ``[n, width]`` of all processes, padded alike, on the CPU."""
    rows = {}
    for name, left in COLUMNS.items():
        if name in found:
            padded = accelerator.pad_across_processes(found[name], dim=1, pad_first=left)
            rows[name] = accelerator.gather(padded).cpu()
    return rows


def keep_groups(config: RunConfig, accuracy: Tensor) -> tuple[list[int], dict[str, float]]:
    """The rows to train on, whole groups, by ``accuracy`` ``[n]``, and counts for the metrics.

    Dynamic sampling keeps the first ``prompts_per_step`` groups that have spread in raw accuracy,
    of those that were drawn at once; it may find fewer.
    """
    size = config.num_generations
    flat = groups_without_spread(accuracy, size) & config.dynamic_sampling
    groups = (~flat).nonzero()[: config.prompts_per_step, 0].tolist()
    return [group * size + i for group in groups for i in range(size)], {
        "generation_batches": 1, "groups_drawn": len(flat), "groups_kept": len(groups),
        "groups_dropped": int(flat.sum()), "accuracy_drawn": float(accuracy.mean()),
    }  # fmt: skip


def deal(
    config: RunConfig, rows: dict[str, Tensor], kept: list[int], advantages: Tensor, *,
    micro_batch: int, process: int = 0, processes: int = 1,
) -> tuple[list[dict[str, Tensor]], list[int]]:
    """The kept rows as one process's micro-batches of ``micro_batch`` rows, in the order in which
    they are used, and the number of real rows in each mini-batch.

    Groups are cut into mini-batches as our loop does it, whatever the number of processes. Where
    too few are kept to fill one, rows without any token to learn from make up the size, which TRL
    cannot change.
    """
    groups = torch.tensor(kept, dtype=torch.long).reshape(-1, config.num_generations)
    each = -(-len(groups) // config.mini_batches)
    capacity = config.prompts_per_step * config.num_generations // config.mini_batches
    dealt, real_rows = [], []
    for number in range(config.mini_batches):
        real = groups[number * each : (number + 1) * each].flatten()
        real_rows.append(len(real))
        chosen = torch.cat([real, real.new_zeros(capacity - len(real))])
        batch = {name: column[chosen] for name, column in rows.items()}
        batch["advantages"] = advantages[chosen]
        batch["completion_mask"][len(real) :] = batch["advantages"][len(real) :] = 0
        # the dapo loss divides by this over the number of mini-batches: its unit is the whole
        # batch, ours the mini-batch
        unit = batch["completion_mask"].sum() * config.mini_batches
        for part in torch.arange(capacity).split(micro_batch * processes):
            mine = part[process * micro_batch : (process + 1) * micro_batch]
            dealt.append({
                **_trimmed({name: column[mine] for name, column in batch.items()}),
                "num_items_in_batch": unit,
                "tokens": batch["completion_mask"][part].sum(),  # in all processes
            })
    return dealt, real_rows


def _trimmed(batch: dict[str, Tensor]) -> dict[str, Tensor]:
    """Without the columns in which no row has a token."""
    starts = int(batch["prompt_mask"].sum(1).max())
    ends = max(1, int(batch["completion_mask"].sum(1).max()))
    for name in COLUMNS.keys() & batch.keys():
        batch[name] = batch[name][:, -starts:] if COLUMNS[name] else batch[name][:, :ends]
    return batch
