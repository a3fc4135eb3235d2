"""Statements of MEDS (arXiv 2604.11297) held against its printed numbers."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from paperlib.methods.clustering import cluster, unit_rows
from paperlib.methods.meds import Meds
from paperlib.report.audit import (
    PROBLEMS,
    UNCHECKED,
    Audited,
    columns_by_method,
    named,
    possible,
    tidy,
    verdict,
)


def meds_audit(data: dict[str, Any]) -> list[Audited]:
    """Statements of MEDS (arXiv 2604.11297) against ``data = published("meds")``."""
    first, second = tidy(data["table1"]), tidy(data["table2"])
    second["method"] = second["method"].str.removeprefix("MEDS-")
    average = columns_by_method(first[first["benchmark"] == "Average"]).droplevel("benchmark")
    variants = columns_by_method(second[second["benchmark"] == "Average"])
    variants = variants.droplevel(["model", "benchmark"])
    rows = [
        *_headline_gains(average),
        _single_gain(first),
        _best_everywhere(average),
        *_scales_with_capability(average),
        _most_cases(first),
        *_variants(variants),
        *_ranking(variants, data["figure5_right_agreement_percent"]),
        _averages(pd.concat([first, second])),
        *_pass_at_k(first, second),
        _identical_rows(first),
        _shared_rows(first, second),
        _cost(data["cost_minutes"]),
        *_heatmap(data["figure7_heatmap"]),
    ]
    return [Audited("MEDS", *row) for row in rows]


def _others(average: pd.DataFrame, without: tuple[str, ...] = ()) -> pd.DataFrame:
    return average.drop(columns=["MEDS", *without])


def _headline_gains(average: pd.DataFrame) -> list[tuple[str, ...]]:
    out = []
    for metric, printed in (("pass@1", 4.13), ("pass@128", 4.37)):  # abstract
        table = average.xs(metric, level="metric")
        gain = table["MEDS"] - _others(table).max(axis=1)
        model = gain.idxmax()
        rival = _others(table).loc[model].idxmax()
        dapo = table["MEDS"] - table["DAPO"]
        out.append((
            f"gains of up to {printed} {metric} points over existing baselines", "abstract",
            f"{printed}",
            f"{gain.max():.2f} over the best other row, {rival} ({model}); over DAPO at most "
            f"{dapo.max():.2f} ({dapo.idxmax()})", verdict(round(gain.max(), 2) == printed),
        ))  # fmt: skip
    return out


def _single_gain(cells: pd.DataFrame) -> tuple[str, ...]:
    single = (cells["metric"] == "pass@128") & (cells["benchmark"] != "Average")
    table = columns_by_method(cells[single])
    key = (table["MEDS"] - table["DAPO"]).idxmax()
    old, new = table.loc[key, "DAPO"], table.loc[key, "MEDS"]
    relative = 100 * (new / old - 1)
    right = key[0] == "Qwen3-8B" and (old, new) == (70.81, 82.67) and round(relative) == 17
    return ("largest pass@128 improvement: Qwen3-8B, one data set", "Sec. 1",
            "70.81 to 82.67, 17 %", f"{key[0]} {key[1]}: {old} to {new}, {relative:.1f} %",
            verdict(right))


def _best_everywhere(average: pd.DataFrame) -> tuple[str, ...]:
    lead = average["MEDS"] - _others(average).max(axis=1)
    return ("MEDS has the best average for all models, pass@1 and pass@128", "Sec. 4.2, Table 1",
            "all", f"best in {int((lead > 0).sum())} of {len(lead)}",
            verdict(bool((lead > 0).all())))


def _scales_with_capability(average: pd.DataFrame) -> list[tuple[str, ...]]:
    out = []
    for metric in ("pass@1", "pass@128"):
        table = average.xs(metric, level="metric")
        gain = table["MEDS"] - table["DAPO"]
        shown = ", ".join(f"{model} {value:+.2f}" for model, value in gain.items())
        out.append((f"the advantage over DAPO is most pronounced on Qwen3-8B, {metric} averages",
                    "Sec. 4.2, Table 1", "more pronounced", shown,
                    verdict(gain.idxmax() == "Qwen3-8B")))
    return out


def _most_cases(cells: pd.DataFrame) -> tuple[str, ...]:
    table = columns_by_method(cells[cells["benchmark"] != "Average"])
    best = int((table["MEDS"] >= _others(table).max(axis=1)).sum())
    return ("MEDS is best in most cases of the pass@k curves (k = 1 and 128 are printed)",
            "Sec. 4.2, Fig. 4, Table 1", "most", f"best or equal in {best} of {len(table)}",
            verdict(2 * best > len(table)))


def _variants(table: pd.DataFrame) -> list[tuple[str, ...]]:
    dapo = table["DAPO"]
    clustered = [m for m in table if m not in ("DAPO", "single cluster")]
    below = [f"{m} {metric} ({table.loc[metric, m]:.2f} against {dapo[metric]:.2f})"
             for m in clustered for metric in table.index if table.loc[metric, m] <= dapo[metric]]
    single = table["single cluster"]
    best = table.idxmax(axis=1)
    return [
        ("every variant that leverages clustering outperforms DAPO (averages)",
         "Sec. 4.6, Table 2", "every variant", "not: " + ("; ".join(below) or "none"),
         verdict(not below)),
        ("a single cluster is worse than DAPO (averages)", "Sec. 4.6, Table 2", "worse",
         ", ".join(f"{m}: {single[m]:.2f} against {dapo[m]:.2f}" for m in table.index),
         verdict(bool((single < dapo).all()))),
        ("the last 14 layers yield the best performance (averages)", "Sec. 4.6, Table 2", "best",
         ", ".join(f"{m}: {best[m]}" for m in table.index), verdict(bool((best == "14").all()))),
    ]


def _ranking(table: pd.DataFrame, agreement: dict[str, Any]) -> list[tuple[str, ...]]:
    names = [name for name in agreement if not name.startswith("_")]
    percent = [agreement[name] for name in names]
    out = []
    for metric in table.index:
        score = [table.loc[metric, name] for name in names]
        rho = float(stats.spearmanr(percent, score).statistic)
        crossed = [f"{a} and {b}" for (a, p, s), (b, q, t)
                   in itertools.combinations(zip(names, percent, score, strict=True), 2)
                   if (p - q) * (s - t) < 0]
        out.append((f"the ranking of agreement closely mirrors that of {metric} "
                    "(at most one pair the other way round)", "Sec. 4.6, Fig. 5 right, Table 2",
                    "closely mirrors; †agreements read off the figure by others but for 14",
                    f"Spearman {rho:.2f} over {len(names)} variants; the other way round: "
                    f"{', '.join(crossed) or 'none'}", verdict(len(crossed) <= 1)))
    out.append(("61.2 % agreement is a substantial positive relationship", "Sec. 4.5",
                f"{agreement['14']} %", "the share of pairs that agree by chance is not printed",
                UNCHECKED))
    return out


def _averages(cells: pd.DataFrame) -> tuple[str, ...]:
    keys = ["model", "method", "metric"]
    singles = cells[cells["benchmark"] != "Average"].groupby(keys, sort=False)["mean"].mean()
    printed = cells[cells["benchmark"] == "Average"].groupby(keys, sort=False)["mean"].first()
    off = (singles - printed).abs()
    bad = off[off > 0.01 + 1e-9]  # each of the six numbers may be off by half a digit
    return ("printed averages are the means of the five benchmarks", "Tables 1 and 2",
            f"{len(off)} averages", f"largest difference {off.max():.3f}; beyond rounding: "
            f"{named(bad.index)}", verdict(bad.empty))


def _pass_at_k(first: pd.DataFrame, second: pd.DataFrame) -> list[tuple[str, ...]]:
    cells = pd.concat([first.assign(where="Table 1"), second.assign(where="Table 2")])
    cells = cells[cells["benchmark"] != "Average"]
    # DAPO and 14 stand in both tables
    cells = cells[(cells["where"] == "Table 1") | ~cells["method"].isin(("DAPO", "14"))]
    wide = cells.pivot_table("mean", ["where", "model", "method", "benchmark"], "metric")
    lower = wide[wide["pass@128"] < wide["pass@1"]]
    out = [("pass@128 is not below pass@1", "Tables 1 and 2", f"{len(wide)} pairs",
            f"below: {named(lower.index)}", verdict(lower.empty))]
    for metric, samples in (("pass@128", 1), ("pass@1", 128)):
        part = cells[cells["metric"] == metric]
        bad = []
        for row in part.itertuples():
            count = PROBLEMS[row.benchmark] * samples
            if not possible(row.mean, count, 1, decimals=2):
                nearest = 100 * round(row.mean * count / 100) / count
                bad.append(f"{row.model} {row.method} {row.benchmark} {row.mean:.2f} "
                           f"(nearest: {nearest:.4f})")
        unit = "1 / problems" if samples == 1 else "1 / (128 x problems)"
        out.append((f"every {metric} is a multiple of {unit}, to two decimals", "Tables 1 and 2",
                    f"{len(part)} cells", f"not: {'; '.join(bad) or 'none'}", verdict(not bad)))
    return out


def _identical_rows(cells: pd.DataFrame) -> tuple[str, ...]:
    wide = cells.pivot_table("mean", ["model", "benchmark", "method"], "metric", sort=False)
    same = []
    for (model, benchmark), part in wide.groupby(level=["model", "benchmark"], sort=False):
        for (a, x), (b, y) in itertools.combinations(part.iterrows(), 2):
            if (x == y).all():
                same.append(f"{model} {benchmark}: {a[-1]} and {b[-1]} "
                            f"({x['pass@1']:.2f}, {x['pass@128']:.2f})")
    return ("no two methods share both cells of a benchmark", "Table 1", "distinct runs",
            f"shared: {'; '.join(same) or 'none'}", verdict(not same))


def _shared_rows(first: pd.DataFrame, second: pd.DataFrame) -> tuple[str, ...]:
    keys = ["method", "benchmark", "metric"]
    one = first[first["model"] == "Qwen2.5-Math-7B"].set_index(keys)["mean"]
    two = second.replace({"method": {"14": "MEDS"}}).set_index(keys)["mean"]
    common = one.index.intersection(two.index)
    differ = [key for key in common if one[key] != two[key]]
    return ("DAPO and MEDS (14) are the same in both tables", "Tables 1 and 2",
            f"{len(common)} cells", f"different: {named(differ)}", verdict(not differ))


def _cost(minutes: dict[str, Any]) -> tuple[str, ...]:
    half, whole = minutes["at_50_steps"], minutes["at_100_steps"]
    rest = {m: whole[m] - half[m] for m in ("MEDS", "DAPO")}
    more = [100 * (step["MEDS"] / step["DAPO"] - 1) for step in (half, whole)]
    return ("minutes that 50 and 100 steps take, as worded: totals", "Sec. 4.2",
            ", ".join(f"{m} {half[m]:.2f} and {whole[m]:.2f}" for m in ("MEDS", "DAPO")),
            f"then steps 51 to 100 would take {rest['MEDS']:.2f} and {rest['DAPO']:.2f}; as "
            f"minutes per step they say that MEDS takes {more[0]:.1f} and {more[1]:.1f} % more",
            # later steps may be faster, but hardly more than twice as fast
            verdict(all(rest[m] > half[m] / 2 for m in rest)))


def heatmap_values(raw: dict[str, Any]) -> tuple[list[str], list[int], np.ndarray]:
    """Fig. 7 as read off by others: response names, layer numbers, logits ``[5, layers]``."""
    layers = [key for key in raw if key.startswith("layer_")]
    values = np.array([raw[key] for key in layers]).T
    return raw["rows"], [int(key.removeprefix("layer_")) for key in layers], values


def _heatmap(raw: dict[str, Any]) -> list[tuple[str, ...]]:
    names, layers, values = heatmap_values(raw)
    labels = cluster(unit_rows(values), Meds())
    found = " | ".join(", ".join(n for n, x in zip(names, labels, strict=True) if x == label)
                       for label in dict.fromkeys(labels.tolist()))
    truth = [name[0] for name in names]
    same = all((labels[i] == labels[j] >= 0) == (truth[i] == truth[j])
               for i, j in itertools.combinations(range(len(names)), 2))
    off = int((np.abs(values * 8 - np.round(values * 8)) > 0.05).sum())  # printed: two decimals
    return [
        ("HDBSCAN groups the five responses as A1, A2 | B1, B2, B3", "Figs. 6 and 7",
         "†logits read off the figure by others", f"from layers {', '.join(map(str, layers))}: "
         f"{found}", verdict(same)),
        ("the logits are bf16 numbers: multiples of 1/8 between 16 and 32", "Fig. 7",
         "†logits read off the figure by others", f"{off} of {values.size} are not",
         verdict(off == 0)),
        ("the first 20 layers show little variation", "Sec. 4.4, Fig. 6", "little",
         "their values are not printed", UNCHECKED),
    ]
