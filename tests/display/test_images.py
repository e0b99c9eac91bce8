"""The pictures of notebooks/images: each is shown, and says what it shows."""

import json
import re
from xml.etree import ElementTree

import pytest
from conventions import ROOT

IMAGES = sorted((ROOT / "notebooks/images").glob("*.svg"))
SHOWN = {  # text alternative by file
    name: alt
    for path in (ROOT / "notebooks").glob("[0-9]*.ipynb")
    for cell in json.loads(path.read_text("utf-8"))["cells"]
    for alt, name in re.findall(r"!\[(.+)\]\(images/(.+)\)", "".join(cell["source"]))
}


@pytest.mark.parametrize("path", IMAGES, ids=lambda path: path.stem)
def test_it_says_what_it_shows_in_light_and_dark_and_needs_no_other_file(path):
    text = path.read_text("utf-8")
    svg = ElementTree.fromstring(text)
    title = svg.findtext("svg:title", namespaces={"svg": "http://www.w3.org/2000/svg"})
    # The matrix unit moves: its title says in how many ticks.
    assert title == SHOWN[path.name] or (path.stem == "systolic" and "in 8 ticks" in title)
    assert "@media (prefers-color-scheme: dark)" in text and 'class="ground"' in text
    assert not re.search("<script|<image|<foreignObject|href=", text)
