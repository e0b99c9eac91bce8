"""Templates escape what they are given, fail on what they are not, and can be read in any theme."""

import re

import jinja2
import pytest

from helpers.base import html


def test_texts_are_escaped_and_a_missing_one_is_told(monkeypatch, tmp_path):
    (tmp_path / "greeting.html").write_text("{{ name }}")
    monkeypatch.setattr(html, "TEMPLATES", tmp_path)
    html._environment.cache_clear()
    try:
        assert html.render("greeting.html", name="<b>Ada</b>") == "&lt;b&gt;Ada&lt;/b&gt;"
        with pytest.raises(jinja2.UndefinedError, match="'name' is undefined"):
            html.render("greeting.html")
    finally:
        html._environment.cache_clear()


def contrast(one: str, other: str) -> float:
    """Contrast as WCAG 2.2 defines it (1.4.3); a text asks for 4.5."""
    lights = []
    for colour in (one, other):
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [x / 12.92 if x <= 0.03928 else ((x + 0.055) / 1.055) ** 2.4 for x in parts]
        lights.append(0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2])
    return (max(lights) + 0.05) / (min(lights) + 0.05)


def test_a_verdict_is_readable_on_its_ground():
    grounds = dict(re.findall(r'"(\w+)": "(#\w{6})"', html.text("chip.html")))
    assert set(grounds) == {"good", "wait", "bad", "hint"}
    for kind, ground in grounds.items():
        card = html.render("card.html", kind=kind, words="w", text="")
        assert card.count(ground) == 2 and "color:#000000" in card
        assert contrast(ground, "#000000") >= 4.5, kind
