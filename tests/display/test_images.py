"""The pictures of notebooks/images: each is shown, and says what it shows."""

import json
import re
from xml.etree import ElementTree

import pytest
from conventions import ROOT

IMAGES = sorted((ROOT / "notebooks/images").glob("*.svg"))
SVG = {"svg": "http://www.w3.org/2000/svg"}


def shown_images():
    """Find the images that notebooks show: their text alternatives by file."""
    alternatives = {}
    for path in (ROOT / "notebooks").glob("[0-9]*.ipynb"):
        for cell in json.loads(path.read_text("utf-8"))["cells"]:
            images = re.findall(r"!\[(.+)\]\(images/(.+)\)", "".join(cell["source"]))
            for alternative, name in images:
                alternatives[name] = alternative
    return alternatives


@pytest.mark.parametrize("path", IMAGES, ids=lambda path: path.stem)
def test_it_says_what_it_shows_in_light_and_dark_and_needs_no_other_file(path):
    text = path.read_text("utf-8")
    title = ElementTree.fromstring(text).findtext("svg:title", namespaces=SVG)
    if path.stem == "systolic":
        assert "in 8 ticks" in title  # the matrix unit moves
    else:
        assert title == shown_images()[path.name]
    assert "@media (prefers-color-scheme: dark)" in text
    assert 'class="ground"' in text
    assert not re.search("<script|<image|<foreignObject|href=", text)
