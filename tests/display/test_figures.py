"""Figures: one style, closed after drawing, with a caption; controls that redraw them."""

import base64
import re

import ipywidgets
import matplotlib.pyplot as plt

from helpers.base.errors import CourseError
from helpers.display import dials, figures


def drawn(*points, alt="it rises"):
    fig, ax = figures.subplots()
    ax.plot(points)
    return fig, figures.figure(fig, alt=alt)


def test_figure_shows_a_closed_png_with_its_alt_text_and_a_caption_the_same_twice(monkeypatch):
    shown = []
    monkeypatch.setattr(figures, "display", lambda *parts: shown.extend(parts))
    fig, figure = drawn(1, 2)
    figure._ipython_display_()
    assert not plt.fignum_exists(fig.number)
    image, caption = shown
    data, metadata = image._repr_mimebundle_()
    assert image.data.startswith(b"\x89PNG") and "image/png" in data
    # 7 inches of 110 pixels, drawn twice as fine.
    assert metadata["image/png"] == {"alt": "it rises", "width": 770}
    assert caption.data == "*it rises*"
    assert figure.png == drawn(1, 2)[1].png


def numbered(number, word):
    if number > 8:
        raise CourseError(f"{number} is too much.", "<8> is the limit.", "Take less.")
    return figures.Figure(f"png of number {number}, {word}".encode(), f'{number} & "{word}"')


def test_the_picture_follows_every_control_and_a_page_has_the_first(monkeypatch):
    stored = []
    monkeypatch.setattr(dials, "display", lambda data, metadata, raw: stored.append(data))
    slider = ipywidgets.IntSlider(value=4, min=1, max=12, description="number")
    menu = ipywidgets.Dropdown(options=["a", "b"], value="a", description="word")
    panel = dials.Dials(numbered, number=slider, word=menu)

    def picture():
        data = re.search(r'src="data:image/png;base64,([^"]*)"', panel.picture.value)
        return base64.b64decode(data[1]).decode()

    panel._ipython_display_()
    (page,) = stored
    assert base64.b64decode(page["image/png"]).decode() == picture() == "png of number 4, a"
    assert page[dials.VIEW]["model_id"] == panel.box.model_id
    assert page["text/plain"] == "A running notebook shows a widget here."
    assert panel.picture.value.count("4 &amp; &quot;a&quot;") == 2  # text alternative and caption
    slider.value, menu.value = 7, "b"
    assert picture() == "png of number 7, b"
    slider.value = 9
    assert "9 is too much." in panel.picture.value and "&lt;8&gt; is" in panel.picture.value
    assert "<img" not in panel.picture.value
    slider.value = 8
    assert picture() == "png of number 8, b"
