"""A notebook becomes a deck: marked cells, one file, nothing fetched."""

import re

import nbformat
import pytest
from bs4 import BeautifulSoup
from made_notebooks import DATA
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from helpers.course import slides


def text(source: str, slide: str) -> nbformat.NotebookNode:
    return new_markdown_cell(source, metadata={"slideshow": {"slide_type": slide}})


def code(source: str, slide: str, *tags: str, shows: dict | None = None) -> nbformat.NotebookNode:
    alt = {"image/png": {"alt": "one point"}}
    outputs = [new_output("display_data", data=shows, metadata=alt)] if shows else []
    metadata = {"slideshow": {"slide_type": slide}, "tags": [*tags]}
    return new_code_cell(source, outputs=outputs, metadata=metadata)


@pytest.fixture(scope="module")
def reveal(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reveal")
    dist = folder / slides.REVEAL / "dist"
    dist.mkdir(parents=True)
    (dist / "reveal.css").write_text("/* its style */ .reveal > p { color: red }")
    (dist / "reveal.js").write_text("/* MIT licensed */ if (1 < 2 && 2 > 1) { var Reveal = {}; }")
    return folder


@pytest.fixture(scope="module")
def deck(reveal, tmp_path_factory):
    badge = "[![Open](https://example.org/badge.svg)](https://example.org)"
    widget = {"application/vnd.jupyter.widget-view+json": {}, "text/plain": "Slider()"}
    cells = [
        text(f"# What is <it>?\n\n{badge}", "slide"),
        code("setup = 1", "skip", "setup"),
        text("## One\n\nSee [the next](02_b.ipynb).", "slide"),
        code("# NBVAL_IGNORE_OUTPUT\nshown = 1", "-", shows=widget),
        code("plot = 1", "subslide", "hide-input", shows={"image/png": DATA["picture"]}),
        text("## Two", "slide"),
        text("<script>alert(1)</script> far <img src='https://x.invalid/a'>", "-"),
    ]
    path = tmp_path_factory.mktemp("notebooks") / "01_a.ipynb"
    nbformat.write(new_notebook(cells=cells), path)
    return BeautifulSoup(slides.deck(path, "What is it?", reveal), "html.parser")


def test_the_marks_make_slides_and_skipped_cells_are_not_there(deck):
    sections = deck.select(".slides > section")
    assert [len(section.select(":scope > section")) for section in sections] == [1, 2, 1]
    words = [section.get_text(" ", strip=True) for section in sections]
    assert "What is" in words[0] and "One" in words[1] and "Two" in words[2]
    assert "setup" not in deck.select_one(".slides").get_text()


def test_outputs_of_hidden_inputs_are_shown_and_links_lead_to_decks(deck):
    text = deck.select_one(".slides").get_text()
    assert "shown" in text and "plot" not in text and "NBVAL" not in text
    assert [image["alt"] for image in deck.select("img")] == ["one point"]
    assert "open the notebook itself" in text  # a widget says where it can be moved
    assert "02_b.html" in [link["href"] for link in deck.select("a[href]")]


def test_the_deck_is_one_file_that_fetches_nothing(deck):
    assert [tag for tag in deck.select("[src]") if not tag["src"].startswith("data:")] == []
    assert deck.select("link, iframe") == []
    scripts = [script.string for script in deck.select("script")]
    assert len(scripts) == 2
    assert "MIT licensed" in scripts[0] and "1 < 2 && 2 > 1" in scripts[0]
    assert "Reveal.initialize" in scripts[1]
    first = deck.head.find(True)
    assert first["http-equiv"] == "Content-Security-Policy"
    assert first["content"].startswith("default-src 'none'")
    assert any(".reveal > p" in style.string for style in deck.select("style"))
    assert not re.search(r"@import|url\((?!data:|#)", str(deck.select("style")))
