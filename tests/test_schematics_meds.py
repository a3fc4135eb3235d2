"""The drawings of the MEDS notebooks: complete, and with the numbers that training would give."""

import pandas
import pytest

from paperlib.report import schematics_meds
from paperlib.report.schematics_meds import blob_figure, overview


def texts(figure):
    return [text.get_text() for axes in figure.axes for text in axes.texts]


def titles(figure):
    return [axes.get_title(loc="left") for axes in figure.axes]


def test_the_overview_walks_once_around_the_loop():
    figure = overview()
    assert [title[0] for title in titles(figure) if title] == list("12345678")
    assert all(not axes.get_xticks().size for axes in figure.axes if axes.get_title(loc="left"))


def test_the_overview_shows_computed_numbers():
    # past and present: 4 + 2 of the frequent mistake, 2 + 1 of the rarer one
    assert schematics_meds.SIZES.tolist() == [0, 6, 0, 3, 0, 6, 0, 0]
    shown = texts(overview())
    assert {"|C| = 6", "|C| = 3"} <= set(shown)
    assert {"−0.19", "−0.14", "0.00"} <= set(shown)  # 0.1 ln 7 and 0.1 ln 4
    # mean of the rewards 0.434, standard deviation 0.608
    assert {"0.93", "−1.03", "−0.94", "−0.71"} <= set(shown)


def test_nothing_is_written_over_the_edge():
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    figure = overview()
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    box = figure.get_tightbbox(canvas.get_renderer())
    assert box.x0 >= 0 and box.y0 >= 0
    assert box.x1 <= figure.get_figwidth() and box.y1 <= figure.get_figheight()


def test_the_same_drawing_twice_and_no_global_figure():
    from matplotlib import pyplot

    assert texts(overview()) == texts(overview())
    assert not pyplot.get_fignums()


def test_blob_figure_draws_the_given_numbers():
    data = pandas.DataFrame(
        {
            "n": [2, 8], "all_noise": [1.0, 0.25], "clusters": [0.0, 1.5],
            "clustered": [0.0, 0.5],
        }
    )
    shares, number = blob_figure(data).axes
    assert shares.lines[0].get_ydata().tolist() == [1.0, 0.25]
    assert shares.lines[1].get_ydata().tolist() == [0.0, 0.5]
    assert number.lines[0].get_ydata().tolist() == [0.0, 1.5]
    assert shares.get_xlim()[1] >= 8
    with pytest.raises(KeyError):
        blob_figure(data.drop(columns="clustered"))
