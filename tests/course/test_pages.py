"""Pages load nothing from outside, escape what they show, and can be used without seeing them."""

import re

import nbformat
import pytest
from bs4 import BeautifulSoup
from cases import cases
from nbformat import v4

from helpers.base.html import POLICY
from helpers.course.editions import pages

TABLE = "<table><thead><tr><th></th><th>bytes</th></tr></thead><tbody><tr><th>a</th></tr></tbody>"


def made(*cells):
    html = pages.notebook(v4.new_notebook(cells=list(cells)), "02_rules", "Rules?", ".")
    return BeautifulSoup(html, "html.parser")


def test_a_box_to_tick_has_its_line_as_name_and_the_notebook_itself_is_not_changed():
    notebook = v4.new_notebook()
    notebook.cells = [v4.new_markdown_cell("- [ ] I can say *what* a `slice` is.\n- [x] Done.")]
    before = nbformat.writes(notebook)
    html = pages.notebook(notebook, "02_rules", "Rules?", ".")
    boxes = BeautifulSoup(html, "html.parser").select("input[type=checkbox]")
    assert [box["aria-label"] for box in boxes] == ["I can say what a slice is.", "Done."]
    assert nbformat.writes(notebook) == before


def test_an_empty_corner_is_no_header_and_the_others_are():
    output = v4.new_output("display_data", {"text/html": f"{TABLE}</table>"})
    code = v4.new_code_cell("table", outputs=[output])
    page = made(code, v4.new_markdown_cell("||b|\n|-|-|\n|1|2|"))
    assert [header.get_text() for header in page.select("th")] == ["bytes", "a", "b"]
    assert not page.select("thead td")[0].get_text()


def test_a_folded_cell_shows_its_title_and_its_output():
    folded = v4.new_code_cell("# @title Optional: draw\nplot()", metadata={"tags": ["hide-input"]})
    folded.outputs = [v4.new_output("stream", text="drawn\n")]
    page = made(folded, v4.new_code_cell("x = 1"))
    (details,) = page.select("details")
    assert details.summary.get_text() == "Optional: draw"
    assert "plot()" in details.get_text() and "drawn" not in details.get_text()
    assert not details.has_attr("open")


def test_two_badges_are_two_when_only_their_words_are_there():
    badge = "[![Open in {0}](https://x.invalid/a.svg)](https://{0}.invalid)"
    page = made(v4.new_markdown_cell(f"{badge.format('a')}\n{badge.format('b')}"))
    assert page.select_one("p").get_text() == "Open in a · Open in b"


FAR = re.compile(r"(https?:)?//")
FETCHES = re.compile(r"@import|url\(\s*['\"]?\s*(?!data:|#)\S")


def fetched(page):
    """What a page would load: tags that load, other attributes with an address, lines of style."""
    tags = page.select("script, iframe, object, embed, base, link, video, audio")
    tags += [tag for tag in page.select("img") if not tag["src"].startswith("data:")]
    for tag in page.find_all():
        # A remote address may stand in a link for people only.
        harmless = {"xmlns", *(["href"] if tag.name == "a" else [])}
        far = {name for name, value in tag.attrs.items() if FAR.search(str(value))}
        tags += [tag] if far - harmless else []
    return tags + [style for style in page.select("style") if FETCHES.search(style.string)]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["01_ok", "02_fails", "03_killed", "06_big", "index"])
def test_a_page_loads_nothing_from_outside(ran, name):
    page = BeautifulSoup(ran.page(name), "html.parser")
    assert fetched(page) == []
    policies = page.select("meta[http-equiv]")
    assert [meta["content"] for meta in policies] == [POLICY]
    assert "default-src 'none'" in POLICY and "script-src" not in POLICY


@pytest.mark.parametrize("bad", cases(__file__, "bad_pages"))
def test_the_pages_test_can_fail(bad):
    assert fetched(BeautifulSoup(bad, "html.parser"))


@pytest.mark.slow
def test_a_page_keeps_text_links_and_alternatives(ran):
    page = ran.page("06_big")
    for kept in (
        *('<a href="https://example.org">a link</a>', ">Open in Colab</a>"),
        *('<a href="07_child.html">the next</a>', "TPU VM"),
        *('<a href="index.html">← Map of the course</a>', 'alt="one point"', "a far picture"),
        "kept</p>",
    ):
        assert kept in page, kept


@pytest.mark.slow
def test_texts_of_a_notebook_are_escaped_in_the_map(ran):
    page = ran.page("index")
    assert "Big code? &lt;script&gt;alert(2)&lt;/script&gt;" in page
    assert "no &lt;b&gt;such&lt;/b&gt; [thing]" in page and "<b>" not in page
    assert "<title>Big code? &lt;script&gt;" in ran.page("06_big")


@pytest.mark.slow
def test_the_map_can_be_used_without_seeing_it(ran):
    text = ran.page("index")
    page = BeautifulSoup(text, "html.parser")
    assert page.html["lang"] == "en"
    view = page.select_one("meta[name=viewport]")
    assert view["content"] == "width=device-width, initial-scale=1"
    for name in ("h1", "title", "main", "caption"):
        assert len(page.select(name)) == 1, name
    assert {head["scope"] for head in page.select("th")} == {"col", "row"}
    assert len(re.findall(r">(✓ passed|✗ failed|✗ died)</strong>", text)) == 7
    assert '<html lang="en">' in ran.page("01_ok")


@pytest.mark.parametrize(
    ("write", "number", "text"),
    [
        *((pages.duration, 0.04, "0.0 s"), (pages.duration, 9.94, "9.9 s")),
        *((pages.duration, 9.96, "10 s"), (pages.duration, 59.6, "1 min 00 s")),
        *((pages.duration, 125, "2 min 05 s"), (pages.memory, 54_300_000, "54 MB")),
        *((pages.memory, 999_600_000, "1.0 GB"), (pages.memory, 25_300_000_000, "25.3 GB")),
    ],
)
def test_numbers_are_written_for_people(write, number, text):
    assert write(number) == text
