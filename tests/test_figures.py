"""A figure is written whole, the same bytes each time, with the numbers behind it."""

import pandas
import pytest
from matplotlib.figure import Figure

from paperlib.report.figures import save_figure


def draw():
    figure = Figure(figsize=(2, 1))
    figure.subplots().plot([0, 1], [1, 0])
    return figure


def test_three_files_the_same_on_every_call(tmp_path):
    data = pandas.DataFrame({"x": [1, 2], "y": [1 / 3, 0.5]})
    first = save_figure(draw(), tmp_path / "a" / "b", "f", data)
    again = save_figure(draw(), tmp_path / "c", "f", data)
    assert [path.name for path in first] == ["f.png", "f.pdf", "f.csv"]
    assert sorted((tmp_path / "a" / "b").iterdir()) == sorted(first)  # nothing temporary stays
    assert [p.read_bytes() for p in first] == [p.read_bytes() for p in again]
    assert first[2].read_text() == "x,y\n1,0.333333\n2,0.5\n"
    assert first[0].read_bytes()[:4] == b"\x89PNG" and first[1].read_bytes()[:4] == b"%PDF"


def test_without_data_no_csv(tmp_path):
    assert [path.suffix for path in save_figure(draw(), tmp_path, "f")] == [".png", ".pdf"]


def test_a_failure_leaves_the_old_figure(tmp_path):
    paths = save_figure(draw(), tmp_path, "f", pandas.DataFrame({"x": [1]}))
    before = [path.read_bytes() for path in paths]

    class Broken:
        def to_csv(self, *args, **kwargs):
            raise OSError("disk full")

    other = Figure(figsize=(3, 3))
    with pytest.raises(OSError, match="disk full"):
        save_figure(other, tmp_path, "f", Broken())
    assert [path.read_bytes() for path in paths] == before
    assert sorted(tmp_path.iterdir()) == sorted(paths)
