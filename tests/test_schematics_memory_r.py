"""The schematic names every equation, and nothing in it covers anything else."""

from itertools import combinations

from matplotlib.backends.backend_agg import FigureCanvasAgg

from paperlib.report.schematics_memory_r import memory_r_architecture


def texts_and_boxes():
    figure = memory_r_architecture()
    renderer = FigureCanvasAgg(figure).get_renderer()
    texts = [text for text in figure.axes[0].texts if text.get_text()]
    return figure, [(text.get_text(), text.get_window_extent(renderer)) for text in texts]


def test_every_equation_is_there():
    _, texts = texts_and_boxes()
    together = "\n".join(text for text, _ in texts)
    for number in range(2, 9):
        assert f"({number})" in together
    for name in ("policy", "answer\nverifier", "encoder", "successes", "failures", "GRPO"):
        assert name in together


def test_texts_lie_inside_and_apart():
    figure, texts = texts_and_boxes()
    for text, box in texts:
        assert figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1, text
        assert figure.bbox.y0 <= box.y0 and box.y1 <= figure.bbox.y1, text
    for (one, box), (other, its_box) in combinations(texts, 2):
        assert not box.overlaps(its_box), (one, other)


def test_each_call_draws_anew():
    assert memory_r_architecture() is not memory_r_architecture()
