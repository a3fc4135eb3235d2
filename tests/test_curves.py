"""Curves and counts of collapses: what is drawn, counted and compared is what was logged."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from test_store import make_config
from test_table1 import put

from paperlib.evaluation.collapse import SHORT
from paperlib.experiments.store import Store
from paperlib.report.curves import curve_grid, curves, gains, last_third, mean_over, rise
from paperlib.report.paired import count, never, occurs, prevented, tally
from paperlib.report.style import color
from paperlib.report.verdict import ABSENT, FAILS, HOLDS, UNTOLD

STEPS = 30


def rows(length_to: float, kl_to: float = 0.0, top: float = 100) -> list[dict]:
    return [
        {"step": s, "accuracy_drawn": 0.5, "reward/correctness": s / top, "kl": kl_to * (s > 8),
         "length": 40.0 if s < 6 else length_to, "reward/explore": float(s > 5),
         "reward/exploit": 0.5}
        for s in range(1, STEPS + 1)
    ]  # fmt: skip


@pytest.fixture
def runs(tmp_path):
    """R1 collapses under seed 0 (length) and 1 (KL); Memory-R+ does not; its seed 1 is missing."""
    store = Store(tmp_path)

    def run(method, seed, metrics):
        made = store.run(replace(make_config(seed), method=method, max_steps=STEPS))
        if metrics:
            put(made, (len(metrics),), [])
            lines = pd.DataFrame(metrics).to_json(orient="records", lines=True)
            (made.folder / "metrics.jsonl").write_text(lines)
        return made

    return {
        "R1": [run("R1", 0, rows(5.0)), run("R1", 1, rows(38.0, 2.0, top=99))],
        "Memory-R+": [run("Memory-R+", 0, rows(38.0)), run("Memory-R+", 1, None)],
    }


def test_curves_hold_the_complete_runs(runs):
    data = curves(runs)
    found = data.groupby(["method", "seed"]).size()
    assert found.to_dict() == {("R1", 0): STEPS, ("R1", 1): STEPS, ("Memory-R+", 0): STEPS}


def test_panels_draw_means_bands_and_labels(runs):
    data = curves(runs)
    figure = curve_grid({"all": (data, ("length", "kl")), "one": (data, ("kl",))}, window=1)
    length, kl, one, off = figure.axes
    assert length.get_ylabel() == "mean length (tokens)" and one.get_xlabel() == "training step"
    assert length.get_title(loc="left") == "all, mean ± std of 2 seeds"
    assert not off.axison
    by_label = {line.get_label(): line for line in length.lines}
    np.testing.assert_allclose(by_label["R1"].get_ydata()[[0, -1]], [40, (5 + 38) / 2])
    assert by_label["Memory-R+"].get_color() == color("Memory-R+")
    assert len(length.collections) == 1  # a band for R1, whose seeds are two
    assert [t.get_text() for t in figure.legends[0].get_texts()] == ["R1", "Memory-R+"]


def test_differences_over_thirds_are_paired_and_show_gaps(runs):
    data = curves(runs)
    correct = "reward/correctness"
    assert mean_over(data, "R1", "length", [0, 1], 5, 7) == [5, 38]
    assert last_third(data, "Memory-R+", "length", [0, 1]) == [38, None]
    found = rise(data, "R1", correct, [0, 1])
    # steps 21 to 30 against 1 to 10: 20 / 100 and 20 / 99
    assert found.mean == pytest.approx((0.2 + 20 / 99) / 2) and found.verdict == "higher"
    assert found.what == "R1, correctness" and found.unit == ""
    text = gains(found, None)
    assert text.startswith("from the first to the last third, R1, correctness: +0.201 [")
    assert text.endswith("; missing")
    assert rise(data, "Memory-R+", correct, [1]) is None
    assert rise(data, "R1", "entropy", [0, 1]) is None  # was not logged
    assert mean_over(data, "GRPO", "length", [0], 0, 9) == [None]


def test_counts_and_their_verdicts(runs):
    assert count(runs["R1"]) == (2, 2) and count(runs["R1"], (SHORT,)) == (1, 2)
    assert count(runs["Memory-R+"]) == (0, 1)
    assert [occurs(c) for c in ((1, 3), (0, 3), (0, 1), (0, 0))] == [HOLDS, ABSENT, UNTOLD, UNTOLD]
    # none of three may still be three of five; none of nine is at most 28 %
    assert [never(c) for c in ((1, 3), (0, 3), (0, 9))] == [FAILS, UNTOLD, HOLDS]
    assert prevented((0, 6), (6, 6)) == HOLDS  # p = 0.002 by Fisher's exact test
    assert prevented((0, 3), (1, 3)) == prevented((0, 1), (3, 3)) == UNTOLD
    assert prevented((1, 3), (3, 3)) == FAILS
    assert prevented((0, 3), (0, 3)) == ABSENT  # nothing to prevent
    assert tally("R1", (1, 3)) == "R1: 1 of 3 runs collapse"
    assert tally("R1", (0, 0)) == "R1: no run has the 16 steps a verdict takes"
