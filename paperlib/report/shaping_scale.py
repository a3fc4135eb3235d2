"""What the division by the group's standard deviation does to groups that are all wrong or right.

There the rewards differ by shaping alone (memories, penalties, format), however little, and
dividing by their spread makes full-size advantages of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from paperlib.experiments.store import Run
from paperlib.report.head_to_head import forest
from paperlib.report.style import COLORS, SERIES, mean_band, panels, smooth
from paperlib.report.table1 import provenance
from paperlib.report.tables import Cell, Column, Row, Table

KINDS = ("all wrong", "mixed", "all right")
WINDOW = 8  # steps of the trailing mean in the figure


def group_frame(rollouts: pd.DataFrame, num_generations: int) -> pd.DataFrame:
    """One row per group of stored rollouts (``n`` rows in whole groups, in order).

    Returns:
        ``step``; ``kind``, one of KINDS; ``spread``, standard deviation (ddof 1) of the summed
        rewards; ``advantage``, mean absolute advantage as trained on; ``centred``, mean absolute
        reward less the group's mean, which is the advantage without the division.
    """
    accuracy, reward, advantage = (
        rollouts[name].to_numpy(dtype=float).reshape(-1, num_generations)
        for name in ("accuracy", "reward", "advantage")
    )
    right = (accuracy > 0.5).sum(1)
    return pd.DataFrame({
        "step": rollouts["step"].to_numpy()[::num_generations],
        "kind": np.where(right == 0, KINDS[0], np.where(right < num_generations, *KINDS[1:])),
        "spread": reward.std(1, ddof=1),
        "advantage": np.abs(advantage).mean(1),
        "centred": np.abs(reward - reward.mean(1, keepdims=True)).mean(1),
    })


def shares(groups: pd.DataFrame) -> dict[str, float]:
    """What :func:`group_frame` adds up to over a run.

    Groups ``all wrong, %``, ``all right, %``, and of both those that are ``shaped, %``: whose
    rewards differ all the same. Mean absolute advantage in ``mixed`` and in ``shaped`` groups, and
    ``shaped, centred``; ``share of |A|, %`` that lies in shaped groups. NaN where there is no such
    group, or no advantage at all.
    """
    mixed = groups["kind"] == "mixed"
    shaped = groups[~mixed & (groups["advantage"] > 0)]
    total = groups["advantage"].sum()
    return {
        "all wrong, %": 100 * float((groups["kind"] == KINDS[0]).mean()),
        "all right, %": 100 * float((groups["kind"] == KINDS[2]).mean()),
        "shaped, %": 100 * len(shaped) / len(groups),
        "mixed": float(groups.loc[mixed, "advantage"].mean()),
        "shaped": float(shaped["advantage"].mean()),
        "shaped, centred": float(shaped["centred"].mean()),
        "share of |A|, %": 100 * float(shaped["advantage"].sum() / total) if total > 0 else np.nan,
    }


def run_groups(runs: Mapping[str, Sequence[Run]]) -> pd.DataFrame:
    """:func:`group_frame` of all complete runs, with ``method`` and ``seed``."""
    frames = [
        group_frame(run.rollouts(), run.config.num_generations).assign(
            method=method, seed=run.config.seed)
        for method, of_method in runs.items() for run in of_method if run.status() == "complete"
    ]  # fmt: skip
    return pd.concat(frames, ignore_index=True)


def share_frame(groups: pd.DataFrame) -> pd.DataFrame:
    """:func:`shares` of every run: ``method``, ``seed`` and its columns."""
    return pd.DataFrame([
        {"method": method, "seed": seed, **shares(mine)}
        for (method, seed), mine in groups.groupby(["method", "seed"], sort=False)
    ])


def share_table(data: pd.DataFrame, runs: Mapping[str, Sequence[Run]]) -> Table:
    """:func:`share_frame`, mean and std over seeds."""
    names = [name for name in data.columns if name not in ("method", "seed")]
    heads = dict.fromkeys(("mixed", "shaped", "shaped, centred"), "mean |A|")
    rows = []
    for method, mine in data.groupby("method", sort=False):
        values = [tuple(mine[name].dropna()) for name in names]
        rows.append(Row(method, tuple(Cell(v) if v else None for v in values)))
    return Table(
        title="Groups whose rollouts are all wrong or all right, and their advantages",
        columns=tuple(Column(name, heads.get(name, "")) for name in names),
        rows=tuple(rows),
        decimals=3,
        notes=(
            "Shaped: groups that are all wrong or all right and whose rewards differ all the same. "
            "|A|: absolute advantage of a rollout as trained on; centred: had it not been divided "
            "by the group's standard deviation. Share of |A|: of a run's whole absolute "
            "advantage, what lies in shaped groups. Mean and standard deviation (ddof 1) over "
            "seeds; – where there is no such group.",
        ),
        footer=provenance([run for of_method in runs.values() for run in of_method]),
    )


def over_steps(groups: pd.DataFrame) -> pd.DataFrame:
    """``share`` of a step's absolute advantage in shaped groups, %: a row a method, seed, step."""
    total = groups.groupby(["method", "seed", "step"], sort=False)["advantage"].sum()
    unmixed = groups[groups["kind"] != "mixed"]
    inside = unmixed.groupby(["method", "seed", "step"], sort=False)["advantage"].sum()
    share = 100 * inside.reindex(total.index, fill_value=0.0) / total
    return share.rename("share").reset_index()


def shaping_figure(
    groups: pd.DataFrame, steps: pd.DataFrame, trained: pd.DataFrame, method: str
) -> Figure:
    """The groups of ``method`` as divided and as centred; what share they have; the switch trained.

    Args:
        groups: :func:`run_groups`; steps: :func:`over_steps`; trained: differences (``compare``).
    """
    figure, axes = panels(1, 3, width=4.0, height=3.8)
    cloud, line, switch = axes[0]
    mine = groups[(groups["method"] == method) & (groups["kind"] != "mixed")]
    mine = mine[mine["advantage"] > 0]
    for name, hue, marker in (("advantage", SERIES[1], "o"), ("centred", SERIES[0], "x")):
        label = "divided by the spread" if name == "advantage" else "centred only"
        cloud.plot(mine["spread"], mine[name], marker, color=hue, markersize=4, alpha=0.5,
                   label=label)
    if len(mine):  # matplotlib refuses a logarithmic scale without values
        cloud.set(xscale="log", yscale="log")
    cloud.set(xlabel="standard deviation of a group's rewards",
              ylabel="mean absolute advantage of the group",
              title=f"{method}: groups all wrong\nor all right, one mark each")
    cloud.legend(frameon=False, loc="lower right")
    for name in [m for m in COLORS if m in set(steps["method"])]:
        table = steps[steps["method"] == name].pivot(index="seed", columns="step", values="share")
        mean_band(line, table.columns, [smooth(row, WINDOW) for row in table.to_numpy()], name)
    line.set(xlabel="generation step", ylabel="share of the |advantage|, %", ylim=(0, None),
             title=f"Their share of the update (± 1 sd\nover seeds, mean of {WINDOW} steps)")
    line.legend(frameon=False, fontsize=9)
    as_rival = trained.assign(method=trained["rival"])  # in the colour of its method
    forest(switch, as_rival, "difference at the last checkpoint, points")
    labels = [f"{row.rival}: {row.metric}" for row in trained.itertuples()]
    switch.set_yticks(range(len(trained)), labels, fontsize=9)
    switch.set_title("Only mixed groups divided − all\n(95 % t-interval over seeds)")
    return figure
