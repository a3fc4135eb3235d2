"""The verdict of tests/soak.py, by hand; the soak itself takes minutes (make soak)."""

import pytest
from soak import judge, look


def rows(**slopes):
    start = {"rss": 500.0, "cpu": 0.5, "files": 20.0, "children": 1.0}
    return [{key: value * (1 + slopes.get(key, 0.0) * step / 100) for key, value in start.items()}
            for step in range(100)]  # fmt: skip


@pytest.mark.parametrize(("slopes", "grown"), [
    ({}, []), ({"rss": 0.05, "cpu": 0.1}, []), ({"rss": 0.2}, ["rss"]), ({"cpu": 0.5}, ["cpu"]),
    ({"files": 0.1}, ["files"]), ({"children": 1.0}, ["children"]), ({"rss": -0.5}, []),
])  # fmt: skip
def test_what_grows_after_the_warm_up_is_named(slopes, grown):
    found = rows(**slopes)
    assert judge([{**row, "rss": 100.0} for row in found[:20]] + found[20:])[1] == grown


def test_an_open_file_is_seen(tmp_path):
    before = look()
    with open(tmp_path / "file", "w"):
        assert look()["files"] == before["files"] + 1
