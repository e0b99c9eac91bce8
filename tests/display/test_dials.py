"""Controls that redraw a picture."""

import base64
import re

import ipywidgets
import pytest

from helpers.base.errors import CourseError
from helpers.display import dials
from helpers.display.figures import Figure


@pytest.fixture
def shown(monkeypatch):
    """What is displayed, as its text at that moment."""
    outputs = []
    monkeypatch.setattr(dials, "display", lambda data, metadata, raw: outputs.append(data))
    return outputs


def numbered(number, word):
    if number > 8:
        raise CourseError(f"{number} is too much.", "<8> is the limit.", "Take less.")
    return Figure(f"png {number} {word}".encode(), f'{number} & "{word}"')


def picture(panel):
    data = re.search(r'src="data:image/png;base64,([^"]*)"', panel.picture.value)
    return base64.b64decode(data[1]).decode()


def make():
    slider = ipywidgets.IntSlider(value=4, min=1, max=12, description="number")
    menu = ipywidgets.Dropdown(options=["a", "b"], value="a", description="word")
    panel = dials.Dials(numbered, number=slider, word=menu)
    panel._ipython_display_()
    return panel, slider, menu


def test_the_picture_follows_every_control_with_its_alternative_text_as_caption(shown):
    panel, slider, menu = make()
    assert picture(panel) == "png 4 a"
    assert panel.picture.value.count("4 &amp; &quot;a&quot;") == 2
    assert 'alt="4 &amp; &quot;a&quot;"' in panel.picture.value
    slider.value = 7
    assert picture(panel) == "png 7 a"
    menu.value = "b"
    assert picture(panel) == "png 7 b"


def test_a_refusal_is_shown_instead_of_the_picture_and_goes_again(shown):
    panel, slider, _ = make()
    slider.value = 9
    assert "9 is too much." in panel.picture.value and "&lt;8&gt; is" in panel.picture.value
    assert "<img" not in panel.picture.value
    slider.value = 8
    assert picture(panel) == "png 8 a"


def test_a_page_has_the_first_picture_in_the_widgets_place(shown):
    panel, _, _ = make()
    (output,) = shown
    assert base64.b64decode(output["image/png"]).decode() == "png 4 a"
    assert output[dials.VIEW]["model_id"] == panel.box.model_id
    assert output["text/plain"] == "A running notebook shows a widget here."
