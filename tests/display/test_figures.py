"""Figures: one style, closed after drawing, with a text alternative and a caption."""

import matplotlib.pyplot as plt
import pytest
from matplotlib.figure import Figure

from helpers.base.errors import CourseError
from helpers.display import figures


def test_subplots_differ_by_marker_and_colour():
    fig, ax = figures.subplots(4, 2)
    lines = [ax.plot([0, 1], [i, i])[0] for i in range(len(figures.PALETTE))]
    assert len({line.get_color() for line in lines}) == len(figures.PALETTE)
    assert len({line.get_marker() for line in lines}) == len(figures.PALETTE)
    assert fig.get_size_inches().tolist() == [4, 2]
    plt.close(fig)


def test_subplots_pass_options_on_and_leave_the_global_style_alone():
    before = dict(plt.rcParams)
    fig, axes = figures.subplots(ncols=2, sharey=True)
    assert len(axes) == 2
    assert dict(plt.rcParams) == before
    plt.close(fig)


def test_figure_shows_a_closed_png_with_its_alt_text_and_a_caption(monkeypatch):
    shown = []
    monkeypatch.setattr(figures, "display", lambda *parts: shown.extend(parts))
    fig, ax = figures.subplots()
    ax.plot([1, 2])
    figures.figure(fig, alt="it rises")._ipython_display_()
    assert not plt.fignum_exists(fig.number)
    image, caption = shown
    data, metadata = image._repr_mimebundle_()
    assert image.data.startswith(b"\x89PNG")
    assert "image/png" in data
    assert metadata["image/png"]["alt"] == "it rises"
    assert caption.data == "*it rises*"


def test_figure_is_the_same_twice():
    def draw():
        fig, ax = figures.subplots()
        ax.plot([1, 2])
        return figures.figure(fig, alt="it rises").png

    assert draw() == draw()


@pytest.mark.parametrize("alt", ["", "  \n"])
def test_figure_asks_for_an_alt_text(alt):
    with pytest.raises(CourseError, match="no text alternative"):
        figures.figure(Figure(), alt=alt)
