"""Collapse detectors on synthetic curves: each kind, near misses, noise, short runs, NaN."""

import numpy as np
import pandas as pd
import pytest

from paperlib.evaluation import collapse
from paperlib.evaluation.collapse import KINDS, MIN_STEPS, CollapseWatch, diagnose_run, verdict

REWARD_MODE, SHORT, LONG, ENTROPY, KL = KINDS
STEPS = 60


def ramp(first: float, last: float, begin: int = 20, end: int = 24, steps: int = STEPS):
    """``first`` up to step ``begin``, then straight to ``last`` at step ``end``, then constant."""
    return np.interp(np.arange(1, steps + 1), [begin, end], [first, last])


def make_run(steps: int = STEPS, **changes) -> pd.DataFrame:
    """A healthy run: everything grows a little, nothing runs away; ``changes`` replace columns."""
    columns = {
        "accuracy_drawn": ramp(0.5, 0.7, 4, steps, steps),
        "reward/integer": ramp(0.45, 0.5, 4, steps, steps),
        "reward/xmlcount": ramp(0.45, 0.5, 4, steps, steps),
        "length": ramp(100, 90, 4, steps, steps),
        "truncated": np.full(steps, 0.05),
        "entropy": ramp(0.5, 0.3, 4, steps, steps),
        "kl": ramp(0.0, 0.1, 4, steps, steps),
        "kl_clamped": np.zeros(steps),
        **{name.replace("__", "/"): values for name, values in changes.items()},
    }
    return pd.DataFrame({"step": np.arange(1, steps + 1), **columns})


THERE_AND_BACK = np.r_[np.full(20, 100.0), np.full(20, 5.0), np.full(20, 90.0)]
COLLAPSES = [
    (REWARD_MODE, "accuracy_drawn", 0.5, 0.1), (SHORT, "length", 100, 6),
    (SHORT, "length", 200, 40), (LONG, "truncated", 0.05, 0.97),
    (ENTROPY, "entropy", 0.5, 0.05), (KL, "kl", 0.0, 3.0), (KL, "kl_clamped", 0, 5),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "name", "first", "last"), COLLAPSES)
def test_each_kind_is_found_at_its_step_alone(kind, name, first, last):
    run = make_run(**{name: ramp(first, last)})
    (found,) = diagnose_run(run)
    assert found.kind == kind and found.end is None and verdict(run) == "collapsed"
    assert 21 <= found.onset <= 29  # it lasts from step 20 to 24, the median is half a window late
    alone = run[["step", *{name, "kl"}]]  # other metrics may be absent
    assert [c.kind for c in diagnose_run(alone)] == [kind]
    noise = 1 + 0.1 * np.random.default_rng(0).standard_normal(STEPS)
    run[name] = np.maximum((run[name] * noise).round(2), 0)
    run.loc[[5, 30, 40], ["length", "truncated", "kl", "accuracy_drawn", "entropy"]] = np.nan
    (found,) = diagnose_run([row.dropna().to_dict() for _, row in run.iterrows()])
    assert found.kind == kind and 20 <= found.onset <= 29


@pytest.mark.parametrize(("name", "first", "last"), [
    ("accuracy_drawn", 0.5, 0.32), ("length", 100, 30), ("length", 15, 9), ("truncated", 0.05, 0.8),
    ("truncated", 0.9, 0.97), ("entropy", 0.5, 0.12), ("entropy", 0.0, 0.0), ("kl", 0.0, 0.9),
])
def test_near_misses_are_none(name, first, last):
    run = make_run(**{name: ramp(first, last)})
    for healthy in (make_run(), run, run[["step"]], make_run(length=np.full(STEPS, np.nan))):
        assert diagnose_run(healthy) == [] and verdict(healthy) == "no collapse"


@pytest.mark.parametrize("name", ["length", "accuracy_drawn", "kl"])
@pytest.mark.parametrize("steps", [[10, 20, 21, 30, 31, 32], [20, 21, 22, 23, 24, 25]])
def test_a_short_spell_lone_outliers_and_noise_are_none(name, steps):
    values = make_run()[name].to_numpy().copy()
    values[steps] = 5.0 if name == "kl" else 0.0
    assert diagnose_run(make_run(**{name: values})) == []
    rng = np.random.default_rng(1)  # the spread of a step's accuracy in the tiny world
    noisy = np.clip(0.5 + 0.15 * rng.standard_normal(STEPS), 0, 1)
    assert diagnose_run(make_run(accuracy_drawn=noisy)) == []


def test_short_runs_get_no_verdict():
    short = make_run(MIN_STEPS - 1, length=np.r_[100, 100, np.full(MIN_STEPS - 3, 4)])
    assert diagnose_run(short) == [] and verdict(short) == "too short"
    assert diagnose_run(pd.DataFrame()) == diagnose_run([]) == [] and verdict([]) == "too short"
    enough = make_run(MIN_STEPS, length=np.r_[100, 100, np.full(MIN_STEPS - 2, 4)])
    assert verdict(enough) == "collapsed"


def test_the_two_forms_of_reward_mode_collapse():
    falls = ramp(0.5, 0.1)
    (easy,) = diagnose_run(make_run(accuracy_drawn=falls))
    assert "while integer rises from 0.450" in easy.detail
    (none,) = diagnose_run(make_run(
        accuracy_drawn=falls, reward__integer=ramp(0.45, 0.3), reward__xmlcount=ramp(0.45, 0.455)
    ))  # fmt: skip
    assert "correctness 0.50 at the start" in none.detail
    assert none.detail.endswith("no reward rises")


def test_flat_correctness_is_called_so_only_after_many_steps():
    def flat(steps, level=0.3):
        return make_run(steps, accuracy_drawn=np.full(steps, level))

    enough = collapse.REWARD_START + collapse.FLAT_STEPS
    assert diagnose_run(flat(enough - 1)) == []
    (found,) = diagnose_run(flat(enough))
    assert (found.kind, found.onset) == (REWARD_MODE, collapse.REWARD_START + 1)
    assert diagnose_run(flat(100, level=0.95)) == []  # nowhere to rise to
    assert diagnose_run(make_run(100, accuracy_drawn=ramp(0.3, 0.4, 4, 100, 100))) == []


def test_a_run_that_comes_back_has_recovered():
    length = THERE_AND_BACK.copy()
    (found,) = diagnose_run(make_run(length=length))
    assert found.onset == pytest.approx(24, abs=1) and found.end == pytest.approx(44, abs=1)
    assert verdict(make_run(length=length)) == "recovered"
    length[50:55] = 5.0  # a second spell, too short to count
    assert verdict(make_run(length=length)) == "recovered"
    length[45:] = 5.0
    assert verdict(make_run(length=length)) == "collapsed"


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_kl_that_is_not_finite_counts_at_once(value):
    values = np.zeros(5)
    values[3] = value
    (found,) = diagnose_run(make_run(5, kl=values))
    assert (found.kind, found.onset) == (KL, 4)
    frame = make_run(5, kl=values)
    frame.loc[3, "length"] = np.nan  # a step without a batch has no KL at all
    assert diagnose_run(frame) == [] or value == np.inf


def test_warnings_come_once_and_agree_with_the_verdict():
    frame = make_run(length=ramp(100, 5), kl=ramp(0, 2, 40, 42))
    rows, watch, said = frame.to_dict("records"), CollapseWatch(), {}
    for last in range(1, STEPS + 1):
        for text in watch(rows[:last]):
            said[text] = last
    assert list(said) == [str(c) for c in diagnose_run(frame)]
    assert list(said)[0].startswith(SHORT) and list(said)[1].startswith(KL)
    # said as soon as it is certain: PERSIST steps from the onset on
    assert list(said.values()) == [c.onset + collapse.PERSIST - 1 for c in diagnose_run(frame)]

    rows = make_run(length=THERE_AND_BACK, entropy=ramp(0.5, 0.01)).to_dict("records")
    (text,) = CollapseWatch()(rows)  # a resumed run hears only of what goes on
    assert text.startswith(ENTROPY) and len(CollapseWatch()(rows[:35])) == 2
