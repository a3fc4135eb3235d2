"""Figures: what is drawn is what was given, and the files of one are the same bytes each time."""

import numpy as np
import pandas
import pytest
from matplotlib.figure import Figure

from paperlib.experiments.recipes import METHODS
from paperlib.report.style import COLORS, color, mean_band, panels, save_figure


def test_every_method_has_its_own_colour_and_a_variant_that_of_its_method():
    assert {*METHODS["memory_r"], *METHODS["meds"]} < set(COLORS)
    assert len(set(COLORS.values())) == len(COLORS)
    assert color("Memory-R+ K=20") == color("Memory-R+") != color("Memory-R")
    assert color("GRPO w/ Entropy Adv") != color("GRPO")


def test_mean_band_draws_mean_and_standard_deviation():
    _, axes = panels(1, 1)
    mean_band(axes[0, 0], [0, 1], [[1.0, 2.0], [3.0, 2.0]], "R1")
    line = axes[0, 0].lines[0]
    np.testing.assert_allclose(line.get_ydata(), [2, 2])
    assert line.get_color() == COLORS["R1"] and line.get_label() == "R1"
    band = axes[0, 0].collections[0].get_paths()[0].vertices[:, 1]
    assert band.max() == pytest.approx(2 + np.sqrt(2))
    mean_band(axes[0, 0], [0, 1], [[1.0, 2.0]], "Cosine")
    assert len(axes[0, 0].collections) == 1  # one seed has no spread


def test_files_of_a_figure_are_the_same_on_every_call(tmp_path):
    def draw():
        figure = Figure(figsize=(2, 1))
        figure.subplots().plot([0, 1], [1, 0])
        return figure

    data = pandas.DataFrame({"x": [1, 2], "y": [1 / 3, 0.5]})
    first, again = (save_figure(draw(), tmp_path / name, "f", data) for name in "ab")
    assert [path.name for path in first] == ["f.png", "f.pdf", "f.csv"]
    assert sorted((tmp_path / "a").iterdir()) == sorted(first)  # nothing temporary stays
    assert [p.read_bytes() for p in first] == [p.read_bytes() for p in again]
    assert first[2].read_text() == "x,y\n1,0.333333\n2,0.5\n"
    assert first[0].read_bytes()[:4] == b"\x89PNG" and first[1].read_bytes()[:4] == b"%PDF"
