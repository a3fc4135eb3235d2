"""Numbers behind MEDS, Figs. 1 and 4, and that the figures show them."""

import numpy as np
import pandas as pd
import pytest

from paperlib.report import meds_figures
from paperlib.report.tables import to_markdown


def test_commonest_counts_only_what_is_asked_for():
    rollouts = pd.DataFrame({"category": ["other"] * 3 + ["skipped_step"] * 2 + ["dropped_carry"]})
    assert meds_figures.commonest(rollouts, ("dropped_carry", "skipped_step")) == "skipped_step"
    assert meds_figures.commonest(rollouts[:3], ("dropped_carry", "skipped_step")) == (
        "dropped_carry"  # none of both: the first named
    )


def measures(method, seed, view, steps, habit):
    return pd.DataFrame({"method": method, "seed": seed, "view": view, "step": steps,
                         "habit": habit, "same_category": 0.5, "path": 0.25})


def test_fig1_draws_percent_and_survives_gaps_and_one_seed():
    frames = [
        measures(method, 0, view, [0, 1, 2], [0.2, np.nan, 0.4])
        for method in ("DAPO", "MEDS") for view in ("training", "test")
    ]  # fmt: skip
    scores = pd.DataFrame([{"method": m, "seed": 0, **dict.fromkeys(meds_figures.SCORES, 0.5)}
                           for m in ("DAPO", "MEDS")])
    figure = meds_figures.errors(pd.concat(frames), scores, "skipped_step")
    line = figure.axes[0].get_lines()[0]
    assert line.get_ydata().tolist() == [20, 20, 30]  # trailing mean, the gap left out
    assert "skipped step" in figure.axes[0].get_ylabel()
    assert figure.axes[1].get_lines()[0].get_xdata().tolist() == [0, 1, 2]
    assert "no LLM" in figure.get_suptitle()


def test_habit_table_shares():
    frame = pd.DataFrame({
        "step": 0, "problem_id": "p", "accuracy": [1, 0, 0, 0], "path": [1, 2, 3, 3],
        "category": ["correct", "other", "skipped_step", "skipped_step"],
        "favourite": "skipped_step", "answer": ["9", "1", "2", "3"],
    })  # fmt: skip
    table = meds_figures.habit_table({"test": {"DAPO": [frame, frame]}}, ("from here",))
    row = dict(zip([c.name for c in table.columns], table.rows[0].cells, strict=True))
    expected = {"wrong": 75, "other": 100 / 3, "skipped step": 200 / 3, "dropped carry": 0,
                "favourite habit": 200 / 3, "two alike: category": 100 / 3, "two alike: answer": 0}
    assert {k: row[k].mean for k in expected} == pytest.approx(expected)
    assert "from here" in to_markdown(table)
    one_wrong = meds_figures.habit_table({"test": {"DAPO": [frame[:2]]}}, ())
    assert "missing" in to_markdown(one_wrong)  # nothing to repeat is no 0


def result(counts):
    """An evaluation with one problem of 4 samples a level."""
    problems = [{"n": 4, "correct": c, "level": level} for level, c in enumerate(counts, start=1)]
    return {"settings": {"task": "tiny_test"}, "problems": problems}


RESULTS = {
    "Base": {0: result([1, 1, 1, 1])},
    "DAPO": {0: result([2, 2, 0, 0]), 1: result([2, 2, 0, 0])},
    "MEDS": {0: result([4, 2, 2, 0]), 1: result([2, 2, 2, 0])},
}


def test_passk_curves_values_and_gap():
    curves = meds_figures.passk_curves(RESULTS, 4)
    assert len(curves) == 5 * 5 * 4
    assert meds_figures.values(curves, "DAPO", 1) == [25, 25]
    assert meds_figures.values(curves, "MEDS", 1) == [50, 37.5]
    assert meds_figures.values(curves, "DAPO", 2, level=1) == pytest.approx([500 / 6] * 2)
    found = meds_figures.gap(curves, "MEDS", "DAPO", 4)
    assert (found.mean, found.low, found.high) == (25, 25, 25)
    assert meds_figures.gap(curves, "MEDS", "Base", 1).mean == 43.75 - 25


def test_crossing_is_where_base_rises_above_the_mean():
    curves = meds_figures.passk_curves(RESULTS, 4)
    # Base: 25, 50, 75, 100; DAPO: 25, 41.7, 50, 50; MEDS: 43.75, 64.6, 75, 75
    assert meds_figures.crossing(curves, "DAPO") == 2
    assert meds_figures.crossing(curves, "MEDS") == 4
    assert meds_figures.crossing(curves[curves["k"] < 4], "MEDS") is None


def test_share_best_counts_ties_for_and_base_in_every_seed():
    curves = meds_figures.passk_curves(RESULTS, 4)
    # k = 1: best on levels 1, 2, 3 and the average, not on 4, where Base is
    assert meds_figures.share_best(curves, "MEDS", (1,)) == [80, 80]
    assert meds_figures.share_best(curves, "DAPO", (1,)) == [20, 40]


def test_fig4_panels_and_lead():
    curves = meds_figures.passk_curves(RESULTS, 4)
    figure = meds_figures.passk(curves)
    titles = [ax.get_title().split(" (")[0] for ax in figure.axes]
    assert titles[:5] == ["Level 1", "Level 2", "Level 3", "Level 4", "Average"]
    lead = {line.get_label(): list(line.get_ydata()) for line in figure.axes[5].get_lines()}
    assert lead["over DAPO"] == pytest.approx([18.75, 275 / 12, 25, 25])
    assert len(figure.axes[5].collections) == 2  # an interval for each rival
    one = meds_figures.passk(curves[curves["seed"] == 0])
    assert not one.axes[5].collections  # one seed has none
