"""Paired differences, their correction for many, and the forest of them, on given numbers."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from paperlib.evaluation.passk import LEVELS
from paperlib.experiments.recipes import eval_settings, recipe
from paperlib.files import write_json_atomic
from paperlib.report import paired as h
from paperlib.report.difference import difference
from paperlib.report.style import panels


def frame(**values):
    """pass@1 and pass@16 (twice as much) of each method, one value a seed."""
    rows = [{"method": m.replace("_", " "), "seed": s, "pass@1": v, "pass@16": 2 * v}
            for m, vs in values.items() for s, v in enumerate(vs)]
    return pd.DataFrame(rows)


def test_holm_and_whether_a_difference_matters_by_hand():
    # 0.01 x 4, 0.03 x 3, then 0.04 x 2 < 0.09 keeps 0.09; NaN is no comparison
    adjusted = h.holm([0.04, 0.01, np.nan, 0.03, 0.7])
    np.testing.assert_allclose(adjusted, [0.09, 0.04, np.nan, 0.09, 0.7])
    assert h.holm([0.9, 0.8]).max() == 1.0
    up, down, unsure = (difference("", ours, [0.0, 0.0])
                        for ours in ([2.0, 2.1], [-2.0, -2.1], [2.0, -2.0]))
    told = [h.matters(found) for found in (up, down, unsure, None)]
    assert told == ["holds"] * 2 + ["cannot be told here"] * 2


def test_differences_are_paired_by_seed_and_survive_a_missing_one():
    data = frame(MEDS=[50, 52, 54], DAPO=[49, 50, 53])
    found = h.gap(data, "MEDS", "DAPO", "pass@1")
    assert (found.mean, found.seeds) == (pytest.approx(4 / 3), 3)
    shuffled = data.sample(frac=1, random_state=0)
    assert h.gap(shuffled, "MEDS", "DAPO", "pass@1") == found
    assert h.gap(data[1:], "MEDS", "DAPO", "pass@1").mean == 1.5  # seed 0 of MEDS is gone
    assert h.gap(data, "MEDS", "R1", "pass@1") is None


def test_compare_corrects_over_all_rows():
    data = frame(MEDS=[50, 52, 54], DAPO=[49, 50, 53], GRPO=[40, 41, 45])
    table = h.compare(data, [("MEDS", "DAPO"), ("GRPO", "DAPO"), ("R1", "DAPO")],
                      ["pass@1", "pass@16"])
    assert table["metric"].tolist() == ["pass@1"] * 2 + ["pass@16"] * 2
    np.testing.assert_allclose(table["mean"], [4 / 3, -26 / 3, 8 / 3, -52 / 3])
    # residuals after the means of methods and seeds, in ninths: MEDS -1 5 -4, DAPO 2 -1 -1, GRPO
    # -1 -4 5 make 90 / 81 over 4 degrees of freedom, twice that the variance of a difference
    spread = h.family_spread(data, "pass@1")
    assert (spread.sd, spread.df) == (pytest.approx(np.sqrt(2 * 90 / 81 / 4)), 4)
    t = (4 / 3) / (spread.sd / np.sqrt(3))
    assert table["p"][0] == pytest.approx(2 * stats.t.sf(t, 4))
    assert table["high"][0] == pytest.approx(4 / 3 + spread.half_width(3))
    np.testing.assert_allclose(table["holm"], h.holm(table["p"]))
    one_seed = h.compare(frame(MEDS=[50], DAPO=[49]), [("MEDS", "DAPO")], ["pass@1"])
    assert one_seed[["low", "p", "holm"]].isna().all(axis=None)
    alike = h.compare(frame(MEDS=[50, 51], DAPO=[49, 50]), [("MEDS", "DAPO")], ["pass@1"])
    assert alike["low"][0] == 1 and np.isnan(alike["p"][0])  # no spread to judge by
    assert h.compare(data, [("R1", "DAPO")], ["pass@1"]).empty


def test_a_hollow_mark_where_the_correction_takes_the_difference_away():
    data = h.compare(frame(MEDS=[50, 52, 54], DAPO=[50, 50.5, 54], GRPO=[40, 41.1, 44]),
                     [("MEDS", "DAPO"), ("GRPO", "DAPO")], ["pass@1", "pass@16"])
    axes = panels(1, 1)[1][0, 0]
    h.forest(axes, data[data["metric"] == "pass@1"], "points")
    assert [t.get_text() for t in axes.get_yticklabels()] == ["MEDS − DAPO", "GRPO − DAPO"]
    marks = [line for line in axes.lines if line.get_marker() == "o"]
    assert [line.get_markerfacecolor() == "white" for line in marks] == [True, False]
    np.testing.assert_allclose(marks[0].get_xdata(), 0.5)


def test_measures_of_a_run(tmp_path):
    settings = eval_settings("memory_r", "smoke", "test")

    row = {"length": 9.0, **dict.fromkeys(h.SECONDS, 0.5)}
    run = SimpleNamespace(
        config=recipe("memory_r", "R1", "smoke", 3), status=lambda: "complete",
        checkpoints=lambda: [(4, tmp_path), (8, tmp_path)],
        evaluation_path=lambda step, settings: tmp_path / f"{step}.json",
        metrics=lambda: pd.DataFrame([row | {"step": i + 1} for i in range(16)]),
    )
    assert h.measures(run, settings) is None  # not evaluated yet
    same, other = "<reasoning>\n1+2=3\n</reasoning>", "<reasoning>\n1+3=4\n</reasoning>"
    problems = [{"level": level, "n": 4, "correct": 1, "truncated": 1, "mean_length": 10.0,
                 "responses": [same, same, same, other], "grades": [0, 0, 0, 1]}
                for level in LEVELS]
    result = {"settings": settings.to_dict(), "problems": problems}
    write_json_atomic(tmp_path / "8.json", result)
    found = h.measure_frame({"R1": [run]}, settings).iloc[0]
    assert (found["method"], found["seed"]) == ("R1", 3)
    assert (found["pass@1"], found["pass@4"]) == (25, 100)
    assert found["path diversity"] == pytest.approx(50)  # 3 of 6 pairs
    assert 0 < found["TF-IDF diversity"] < 50  # and those pairs share some tokens
    assert (found["truncated"], found["length"]) == (25, 10)
    assert (found["collapsed"], found["seconds per step"]) == (0, 1.5)
