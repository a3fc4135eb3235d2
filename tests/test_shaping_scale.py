"""Advantages of groups that are all wrong or all right, counted on groups small enough to check."""

import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib.colors import to_hex

from paperlib.report.shaping_scale import (
    group_frame,
    over_steps,
    shaping_figure,
    share_frame,
    share_table,
    shares,
)
from paperlib.report.style import COLORS
from paperlib.rl.objective import group_advantages


def rollouts(scaled=True):
    """Step 1: all wrong with one small bonus, then mixed. Step 2: all right without any spread."""
    accuracy = torch.tensor([0.0] * 4 + [1, 0, 0, 0] + [1.0] * 4)
    reward = torch.tensor([0.1, 0, 0, 0] + [1.0, 0, 0, 0] + [1.0] * 4)
    advantage = group_advantages(reward, 4, scale_rewards=True, advantage_epsilon=0.0,
                                 only_mixed=None if scaled else accuracy)
    return pd.DataFrame({"step": [1] * 8 + [2] * 4, "accuracy": accuracy, "reward": reward,
                         "advantage": advantage})


def test_groups_by_hand():
    groups = group_frame(rollouts(), 4)
    assert groups["kind"].tolist() == ["all wrong", "mixed", "all right"]
    assert groups["step"].tolist() == [1, 1, 2]
    # 0.1 and three zeros: sd 0.05, deviations 0.075 and 3 x 0.025; divided 1.5 and 3 x 0.5
    np.testing.assert_allclose(groups["spread"], [0.05, 0.5, 0], atol=1e-8)
    np.testing.assert_allclose(groups["centred"], [0.0375, 0.375, 0], atol=1e-8)
    np.testing.assert_allclose(groups["advantage"], [0.75, 0.75, 0], rtol=1e-5)


def test_a_bonus_of_a_tenth_takes_half_of_the_update_unless_it_is_only_centred():
    divided, centred = (shares(group_frame(rollouts(scaled), 4)) for scaled in (True, False))
    assert divided["share of |A|, %"] == pytest.approx(50)
    assert centred["share of |A|, %"] == pytest.approx(100 * 0.0375 / (0.0375 + 0.75))
    assert divided["all wrong, %"] == divided["all right, %"] == pytest.approx(100 / 3)
    assert divided["shaped, %"] == pytest.approx(100 / 3)  # the one that is all right is flat
    assert divided["shaped"] == divided["mixed"] == pytest.approx(0.75)
    assert divided["shaped, centred"] == pytest.approx(0.0375)
    assert centred["shaped"] == pytest.approx(0.0375)
    mixed = shares(group_frame(rollouts().iloc[4:8], 4))
    assert np.isnan(mixed["shaped"]) and mixed["share of |A|, %"] == 0


def test_shares_of_steps_and_of_runs_are_drawn_and_tabled():
    frames = [group_frame(rollouts(), 4).assign(method="R1", seed=seed) for seed in (0, 1)]
    groups = pd.concat(frames, ignore_index=True)
    steps = over_steps(groups)
    np.testing.assert_allclose(steps["share"], [50, np.nan] * 2)  # step 2: no advantage at all
    data = share_frame(groups)
    assert data[["method", "seed"]].to_numpy().tolist() == [["R1", 0], ["R1", 1]]
    assert share_table(data, {}).rows[0].cells[-1].text(0) == "50 ± 0"
    trained = pd.DataFrame([{"method": "R1, mixed scaled", "rival": "R1", "metric": "pass@1",
                             "mean": 1.0, "low": np.nan, "high": np.nan, "holm": np.nan}])
    figure = shaping_figure(groups, steps, trained, "R1")
    cloud, line, switch = figure.axes
    np.testing.assert_allclose(cloud.lines[0].get_xdata(), [0.05, 0.05])  # one dot a run
    np.testing.assert_allclose(line.lines[0].get_ydata(), [50, 50])
    assert switch.get_yticklabels()[0].get_text() == "R1: pass@1"
    assert to_hex(switch.lines[0].get_color()) == COLORS["R1"].lower()
    empty = shaping_figure(groups, steps, trained, "MEDS")  # a method without unmixed groups
    assert [len(line.get_xdata()) for line in empty.axes[0].lines] == [0, 0]
