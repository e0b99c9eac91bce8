"""Templates escape what they are given, fail on what they are not, and can be read in any theme."""

import re

import jinja2
import pytest

from helpers.base import html

CARD = {"title": "", "words": "w", "text": "<b>Ada</b>", "code": ""}


def light(colour: str) -> float:
    """Relative luminance as WCAG 2.2 defines it."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [x / 12.92 if x <= 0.03928 else ((x + 0.055) / 1.055) ** 2.4 for x in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_a_verdict_is_readable_on_its_ground_and_its_text_is_escaped():
    grounds = dict(re.findall(r'"(\w+)": "(#\w{6})"', html.text("chip.html")))
    assert set(grounds) == {"good", "wait", "bad", "hint"}
    for kind, ground in grounds.items():
        card = html.render("card.html", kind=kind, **CARD)
        assert card.count(ground) == 2 and "color:#000000" in card
        assert "&lt;b&gt;Ada&lt;/b&gt;" in card
        assert (light(ground) + 0.05) / 0.05 >= 4.5, kind  # contrast with black, 1.4.3
    with pytest.raises(jinja2.UndefinedError, match="'kind' is undefined"):
        html.render("card.html", **CARD)
