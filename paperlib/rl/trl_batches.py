"""Which rows of a generation batch are trained on, and how they are dealt out to processes."""

from __future__ import annotations

import torch
from torch import Tensor

from paperlib.rl.config import RunConfig
from paperlib.rl.objective import groups_without_spread

# columns of a generation batch in TRL's names, and whether they are padded on the left
COLUMNS = {
    "prompt_ids": True, "prompt_mask": True, "completion_ids": False, "completion_mask": False,
    "old_per_token_logps": False, "ref_per_token_logps": False,
}  # fmt: skip


def keep_groups(config: RunConfig, accuracy: Tensor) -> tuple[Tensor, dict[str, float]]:
    """The rows to train on, by ``accuracy`` ``[n]``, and counts for the metrics.

    Dynamic sampling keeps the first ``prompts_per_step`` groups that have spread in raw accuracy,
    of those that were drawn at once; it may find fewer.
    """
    size = config.num_generations
    flat = torch.zeros(len(accuracy) // size, dtype=torch.bool)
    if config.dynamic_sampling:
        flat = groups_without_spread(accuracy, size)
    groups = (~flat).nonzero()[: config.prompts_per_step, 0]
    return (groups[:, None] * size + torch.arange(size)).flatten(), {
        "generation_batches": 1, "groups_drawn": len(flat), "groups_kept": len(groups),
        "groups_dropped": int(flat.sum()), "accuracy_drawn": float(accuracy.mean()),
    }  # fmt: skip


def deal(
    config: RunConfig, rows: dict[str, Tensor], kept: Tensor, advantages: Tensor, *,
    micro_batch: int, process: int = 0, processes: int = 1,
) -> tuple[list[dict[str, Tensor]], list[int]]:
    """The kept rows as one process's micro-batches, in the order in which they are used, and the
    number of real rows in each mini-batch.

    Groups are cut into mini-batches as our loop does it, whatever the number of processes. Where
    too few are kept to fill one, rows without any token to learn from make up the size, which TRL
    cannot change.

    Args:
        rows: columns ``[n, width]`` of all processes.
        kept: indices of whole groups among the ``n`` rows.
        advantages: ``[n]``.
        micro_batch: rows of a micro-batch in each process.
    """
    groups = kept.reshape(-1, config.num_generations)
    each = -(-len(groups) // config.mini_batches)
    capacity = config.prompts_per_step * config.num_generations // config.mini_batches
    dealt, real_rows = [], []
    for number in range(config.mini_batches):
        real = groups[number * each : (number + 1) * each].flatten()
        real_rows.append(len(real))
        chosen = torch.cat([real, real.new_zeros(capacity - len(real))])
        credit = advantages[chosen]
        mask = rows["completion_mask"][chosen]
        credit[len(real) :] = mask[len(real) :] = 0
        for part in torch.arange(capacity).split(micro_batch * processes):
            mine = part[process * micro_batch : (process + 1) * micro_batch]
            batch = {name: column[chosen[mine]] for name, column in rows.items()}
            batch |= {"completion_mask": mask[mine], "advantages": credit[mine]}
            dealt.append({
                **_trimmed(batch),
                # the dapo loss divides by this over the number of mini-batches: its unit is the
                # whole batch, ours the mini-batch
                "num_items_in_batch": mask.sum() * config.mini_batches,
                "tokens": mask[part].sum(),  # of this micro-batch in all processes
            })
    return dealt, real_rows


def _trimmed(batch: dict[str, Tensor]) -> dict[str, Tensor]:
    """Without the columns in which no row has a token."""
    starts = int(batch["prompt_mask"].sum(1).max())
    ends = max(1, int(batch["completion_mask"].sum(1).max()))
    for name in COLUMNS.keys() & batch.keys():
        batch[name] = batch[name][:, -starts:] if COLUMNS[name] else batch[name][:, :ends]
    return batch
