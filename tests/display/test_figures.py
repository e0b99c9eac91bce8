"""Figures: one style, closed after drawing, with a text alternative and a caption."""

import matplotlib.pyplot as plt
import pytest
from matplotlib.figure import Figure

from helpers.base.errors import CourseError
from helpers.display import figures


def drawn():
    fig, ax = figures.subplots()
    ax.plot([1, 2])
    return fig, figures.figure(fig, alt="it rises")


def test_subplots_differ_by_marker_and_colour_and_leave_the_global_style_alone():
    before, count = dict(plt.rcParams), len(figures.PALETTE)
    fig, (first, second) = figures.subplots(4, 2, ncols=2, sharey=True)
    lines = [first.plot([0, 1], [i, i])[0] for i in range(count)]
    assert len({line.get_color() for line in lines}) == count
    assert len({line.get_marker() for line in lines}) == count
    assert fig.get_size_inches().tolist() == [4, 2]
    assert first.get_shared_y_axes().joined(first, second)
    assert dict(plt.rcParams) == before
    plt.close(fig)


def test_figure_shows_a_closed_png_with_its_alt_text_and_a_caption_the_same_twice(monkeypatch):
    shown = []
    monkeypatch.setattr(figures, "display", lambda *parts: shown.extend(parts))
    fig, figure = drawn()
    figure._ipython_display_()
    assert not plt.fignum_exists(fig.number)
    image, caption = shown
    data, metadata = image._repr_mimebundle_()
    assert image.data.startswith(b"\x89PNG") and "image/png" in data
    # 7 inches of 110 pixels, drawn twice as fine.
    assert metadata["image/png"] == figure.metadata == {"alt": "it rises", "width": 770}
    assert caption.data == "*it rises*"
    assert figure.png == drawn()[1].png


@pytest.mark.parametrize("alt", ["", "  \n"])
def test_figure_asks_for_an_alt_text(alt):
    with pytest.raises(CourseError, match="no text alternative"):
        figures.figure(Figure(), alt=alt)
