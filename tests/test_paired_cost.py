"""What a pair compares, and the arithmetic of the overhead."""

import itertools
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from paperlib.errors import UserError
from paperlib.experiments import paired_cost
from paperlib.experiments.paired_cost import overhead, paired_steps
from paperlib.experiments.recipes import recipe
from paperlib.experiments.store import Store
from paperlib.tasks.tiny import MODEL_DIR

PARTS = ("sample", "terms", "update")


def steps(*rows):
    """(sample, terms, update) of DAPO and of MEDS, pair by pair."""
    out = []
    for pair, (dapo, meds) in enumerate(rows, start=1):
        for method, parts in (("DAPO", dapo), ("MEDS", meds)):
            found = dict(zip(PARTS, parts, strict=True))
            out.append({"pair": pair, "method": method, **found, "total": sum(parts)})
    return pd.DataFrame(out)


def test_overhead_by_hand():
    # added: 5 (twice), 10, 30 (twice) % of DAPO's 2 seconds; without the update 5, 5, 5, 10, 10
    dapo, low, high = (1, 0, 1), (1, 0.1, 1), (1.1, 0.1, 1.4)
    found = steps(*[(dapo, meds) for meds in (low, low, (1, 0.1, 1.1), high, high)])
    assert overhead(found, PARTS) == pytest.approx((10, 5, 30))
    assert overhead(found, ("sample", "terms"))[0] == pytest.approx(5)
    assert overhead(found, ("sample",))[0] == pytest.approx(0)
    middle, *interval = overhead(found[found["pair"] <= 4], PARTS)
    assert middle == pytest.approx(7.5) and np.isnan(interval).all()  # too few for an interval


@pytest.mark.skipif(not MODEL_DIR.exists(), reason="the tiny model is not built")
def test_a_pair_differs_in_the_penalty_alone(tmp_path, monkeypatch):
    config = replace(recipe("meds", "MEDS", "smoke", 0), max_steps=1, prompts_per_step=2,
                     num_generations=4)
    run = Store(tmp_path).run(config)
    with pytest.raises(UserError, match="is missing; paired steps"):
        paired_steps(run, 1)
    run.ensure(progress=False)
    before = (run.checkpoints()[-1][1] / "model.safetensors").read_bytes()
    ticks = itertools.count()
    monkeypatch.setattr(paired_cost.time, "process_time", lambda: float(next(ticks)))
    found = paired_steps(run, 2)
    assert found["method"].tolist() == ["DAPO", "MEDS", "MEDS", "DAPO"]  # who is first alternates
    for column in ("completions", "forwards", "batches"):
        assert (found.groupby("pair")[column].nunique() == 1).all()
    assert found["completions"].nunique() == 2 and (found["forwards"] > 2).all()
    assert (found["total"] == 3).all()  # each part is timed once
    assert (run.checkpoints()[-1][1] / "model.safetensors").read_bytes() == before


def test_a_run_without_the_penalty_is_refused(tmp_path, monkeypatch):
    run = Store(tmp_path).run(recipe("meds", "DAPO", "smoke", 0))
    monkeypatch.setattr(type(run), "status", lambda self: "complete")
    with pytest.raises(UserError, match="no cluster penalty"):
        paired_steps(run, 1)
