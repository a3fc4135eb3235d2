"""The released readings reproduce the released functions on 80 texts."""

import json
from pathlib import Path

import numpy as np
import pytest
from rollout_batches import rollouts

from paperlib.methods import released
from paperlib.methods.baselines import (
    Correctness,
    CosineLength,
    IntegerAnswer,
    SoftFormat,
    StrictFormat,
    XmlCount,
)
from paperlib.methods.rollouts import call_term

GOLDEN = json.loads(
    (Path(__file__).parent / "golden" / "memory_r_rewards_released.json").read_text("utf-8")
)


@pytest.mark.parametrize(
    ("field", "term"),
    [
        ("correctness", Correctness(rule="string")),
        ("integer", IntegerAnswer("released")),
        ("xmlcount", XmlCount("released")),
        ("soft_format", SoftFormat("released")),
        ("strict_format", StrictFormat("released")),
        ("cosine", CosineLength.released()),
    ],
)
def test_golden_rewards(field, term):
    batch = rollouts(
        [case["completion"] for case in GOLDEN], golds=[case["gold"] for case in GOLDEN],
        accuracy=[0.5] * len(GOLDEN),  # must not matter: the released code grades by string
    )
    expected = [case[field] for case in GOLDEN]
    assert len(set(expected)) > 1 and len(expected) == 80  # the trace tells something
    np.testing.assert_allclose(call_term(term, batch), expected, rtol=0, atol=1e-9)
    assert term.name == field
    for case in GOLDEN:
        assert released.reasoning_text(case["completion"]) == case["reasoning_text"]


def test_no_term_compares_on_its_own(monkeypatch):
    asked = []

    def grade_all(completions, golds, mode):
        asked.append((completions, golds, mode))
        return [False] * len(golds)

    monkeypatch.setattr("paperlib.methods.baselines.grade_all", grade_all)
    one = rollouts([""], golds=[""])
    assert call_term(Correctness("string"), one).tolist() == [0.0]
    assert call_term(CosineLength.released(), one).tolist() == [-1.0]
    assert asked == [([""], [""], "strict")] * 2
