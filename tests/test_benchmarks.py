"""The benchmark programs: their arithmetic, their table, and that the prepared GPU script runs."""

import sys
from pathlib import Path

import numpy as np
import pytest

from paperlib.files import read_json

HERE = Path(__file__).parent / "benchmarks"


@pytest.fixture(autouse=True)
def programs(monkeypatch):
    monkeypatch.syspath_prepend(str(HERE))
    yield
    for path in HERE.glob("*.py"):
        sys.modules.pop(path.stem, None)


def test_ratio_verdict_and_exponent_by_hand(tmp_path, monkeypatch):
    import measure

    monkeypatch.setattr(measure, "HERE", tmp_path)
    row = measure.paired_row("step", "TRL", ([1.0, 2.0, 3.0], [4.0, 4.0, 4.0]), 0.5)
    assert (row["ours"], row["peer"], row["ratio"]) == (2.0, 4.0, 0.5)
    measure.save("a", [row, {"work": "real step", "why": "no wheel"}])
    measure.save("b", [measure.timed_row("start", 2.0, 1.0)])
    sizes = np.array([10, 100, 1000])
    assert measure.exponent(sizes, 3.0 * sizes**1.5) == pytest.approx(1.5)
    text = (tmp_path / "RESULTS.md").read_text()
    assert "| step | 2 s | 4 s | TRL | 0.5 | 0.5 | met |" in text
    assert "| start | 2 s | 1 s | the time allowed | 2 | 1 | **missed** |" in text
    assert "- real step: not measured, no wheel" in text


def test_the_double_of_the_released_memory_by_hand():
    import memories

    queries = np.eye(3, dtype=np.float32)
    responses = np.stack([np.eye(3, dtype=np.float32)] * 3)[:, :2]  # of each: x and y
    double = memories.ListMemory(queries, responses, 1)
    assert double.exploit(queries[0], np.array([0.5, 0.5, 1.0])) == 1.0  # no spread yet: 1 - 0
    assert double.window[-1] == pytest.approx(1.0)  # to the middle of x and y
    assert double.explore(queries[0], np.array([0.0, 0.0, 1.0])) == 0.0
    double.write(queries[0], np.array([0, 0, 1], dtype=np.float32))  # x, the oldest, goes
    assert double.neighbours(queries[0]).tolist() == [[0, 1, 0], [0, 0, 1]]


@pytest.mark.parametrize("part", [pytest.param("parity", marks=pytest.mark.slow), "bench"])
def test_the_gpu_script_runs_in_small_on_the_cpu(tmp_path, part):
    import gpu

    found = gpu.main([part, "--out", str(tmp_path / "found.json"), "--device", "cpu", "--small",
                      "--steps", "2"])  # fmt: skip
    assert read_json(tmp_path / "found.json") == found
    if part == "parity":
        assert found["fp32 dapo beta 0.04"]["gradient"] < 1e-5 and found["MEDS trl"]["seconds"]
        return
    assert found["GRPO ours"]["first_update_ratio_max"] == pytest.approx(1, abs=1e-4)
    assert found["GRPO trl"]["sampled_tokens_per_second"] > 0
    assert found["seconds of a step over GRPO's, ours"].keys() == {
        "GRPO ours", "MEDS ours", "Memory-R+ ours", "GRPO trl",
    }  # fmt: skip
