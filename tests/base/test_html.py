"""Templates escape what they are given, and fail on what they are not."""

import re

import jinja2
import pytest

from helpers.base import html


def test_texts_are_escaped_and_a_missing_one_is_told(tmp_path):
    (tmp_path / "greeting.html").write_text("{{ name }}")
    page = html.render("greeting.html", tmp_path, name="<b>Ada</b>")
    assert page == "&lt;b&gt;Ada&lt;/b&gt;"
    with pytest.raises(jinja2.UndefinedError, match="'name' is undefined"):
        html.render("greeting.html", tmp_path)


def luminance(colour: str) -> float:
    """Relative luminance of a colour, such as ``#d55e00``, as WCAG 2.2 defines it."""
    channels = []
    for start in (1, 3, 5):
        value = int(colour[start : start + 2], 16) / 255
        linear = value / 12.92 if value <= 0.03928 else ((value + 0.055) / 1.055) ** 2.4
        channels.append(linear)
    red, green, blue = channels
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_a_verdict_is_readable_on_its_ground():
    chip = (html.TEMPLATES / "chip.html").read_text("utf-8")
    grounds = dict(re.findall(r'"(\w+)": "(#\w{6})"', chip))
    assert set(grounds) == {"good", "wait", "bad", "hint"}
    for kind, ground in grounds.items():
        card = html.render("card.html", kind=kind, words="Right", text="")
        assert card.count(ground) == 2
        assert "color:#000000" in card
        contrast_with_black = (luminance(ground) + 0.05) / 0.05
        assert contrast_with_black >= 4.5, kind  # 1.4.3 asks for it
