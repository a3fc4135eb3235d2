"""Which rows of a generation batch are trained on, and how they are dealt out to processes."""

from typing import Any

import torch
from torch import Tensor

from paperlib.rl.config import RunConfig
from paperlib.rl.objective import groups_without_spread

# columns of a generation batch in TRL's names, and whether they are padded on the left
COLUMNS = {
    "prompt_ids": True, "prompt_mask": True, "completion_ids": False, "completion_mask": False,
    "old_per_token_logps": False, "ref_per_token_logps": False,
}  # fmt: skip


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
