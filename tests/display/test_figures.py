"""Figures: one style, closed after drawing, with a caption; a dial of them."""

import base64
import re
from xml.etree import ElementTree

import matplotlib.pyplot as plt

from helpers.display import figures
from helpers.display.dials import Dial


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
    assert image.data.startswith(b"\x89PNG")
    assert "image/png" in data
    # 7 inches of 110 pixels, drawn twice as fine.
    assert metadata["image/png"] == {"alt": "it rises", "width": 770}
    assert caption.data == "*it rises*"
    assert figure.png == drawn(1, 2)[1].png


def parsed(html):
    html = re.sub(r"( checked| data-[\w-]+)(?=[ >])", r'\1=""', html)
    return ElementTree.fromstring(re.sub("(<(?:input|img).*?)>", r"\1/>", html))


def test_a_dial_has_a_picture_and_its_words_for_each_value_and_needs_no_script():
    def draw(n):
        fig, _ = drawn(1, n)
        return fig, f"a < {n} & b"

    dial = Dial("rows", draw, (2, 30, 4), start=30)
    assert repr(dial) == "rows 30: a < 30 & b"
    assert plt.get_fignums() == []
    page = parsed(dial._repr_html_())
    labels = page.findall(".//label")
    assert ["".join(label.itertext()).strip() for label in labels] == ["2", "30", "4"]
    keys = [label.find("input").attrib for label in labels]
    assert ["checked" in key for key in keys] == [False, True, False]
    for key in keys:
        assert "data-lm-suppress-shortcuts" in key  # JupyterLab's, of the arrows
    figures = page.findall(".//figure")
    captions = [figure.findtext(".//em") for figure in figures]
    assert captions == ["a < 2 & b", "a < 30 & b", "a < 4 & b"]
    names_in_figures = []
    for figure in figures:
        svg = ElementTree.tostring(figure.find("svg"), "unicode")
        references = set(re.findall(r'(?:href="|url\()#(\w+)', svg))
        names = set(re.findall(r' id="(\w+)"', svg))
        assert references
        assert references <= names
        assert "currentColor" in svg
        assert not re.search("#000000|#ffffff|script|http", svg)
        names_in_figures.append(names)
    # What one draws isn't hidden with another.
    assert not names_in_figures[0] & names_in_figures[1]


def test_a_dial_that_lost_its_css_and_drawings_shows_one_image_with_its_words():
    """As JupyterLab shows it in a notebook that it doesn't trust."""

    def draw(n):
        fig, _ = drawn(1, n)
        fig.axes[0].set_xlabel(f"ticks of {n}")
        return fig, f"it rises to {n}"

    html = Dial("rows", draw, (2, 30), start=30)._repr_html_()
    cleaned = re.sub(r"(?s)<style.*?</style>|</?(svg|g|path|text|defs|use)\b.*?>", "", html)
    page = parsed(cleaned)
    assert "ticks of 2" in "".join(page.itertext())
    for parent in page.findall(".//*[@hidden]/.."):
        for child in parent.findall("*[@hidden]"):
            parent.remove(child)
    text = " ".join("".join(page.itertext()).split())
    assert text.startswith("rows 30: it rises to 30 This notebook is not trusted")
    (image,) = page.findall(".//img")
    assert image.get("alt") == "30: it rises to 30"
    scheme, code = image.get("src").split(",")
    assert scheme == "data:image/svg+xml;base64"
    drawing = ElementTree.fromstring(base64.b64decode(code))
    assert drawing.tag == "{http://www.w3.org/2000/svg}svg"
    assert "ticks of 30" in "".join(drawing.itertext())
