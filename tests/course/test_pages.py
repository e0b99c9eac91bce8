"""Pages load nothing from outside, escape what they show, and can be used without seeing them."""

import html.parser
import re

import nbformat
import pytest
from bs4 import BeautifulSoup
from nbformat import v4

from helpers.base.html import POLICY
from helpers.course import pages

TABLE = "<table><thead><tr><th></th><th>bytes</th></tr></thead><tbody><tr><th>a</th></tr></tbody>"


def made(*cells):
    html = pages.notebook(v4.new_notebook(cells=list(cells)), "02_rules", "Rules?", ".")
    return BeautifulSoup(html, "html.parser")


def test_a_box_to_tick_has_its_line_as_name():
    page = made(v4.new_markdown_cell("- [ ] I can say *what* a `slice` is.\n- [x] Done."))
    boxes = page.select("input[type=checkbox]")
    assert [box["aria-label"] for box in boxes] == ["I can say what a slice is.", "Done."]


def test_an_empty_corner_is_no_header_and_the_others_are():
    output = v4.new_output("display_data", {"text/html": f"{TABLE}</table>"})
    page = made(
        v4.new_code_cell("table", outputs=[output]), v4.new_markdown_cell("||b|\n|-|-|\n|1|2|")
    )
    assert [header.get_text() for header in page.select("th")] == ["bytes", "a", "b"]
    assert not page.select("thead td")[0].get_text()


def test_links_reach_headings_by_both_names():
    page = made(v4.new_markdown_cell("## bounded shape\n## XLA\n## Forty laptops, offline\n## XLA"))
    names = [tag["id"] for tag in page.select("h2 [id]")]
    assert names == [
        "bounded-shape",
        "xla",
        "XLA",
        "forty-laptops-offline",
        "Forty-laptops,-offline",
    ]


def test_the_notebook_itself_is_not_changed():
    notebook = v4.new_notebook(cells=[v4.new_markdown_cell("- [ ] one")])
    before = nbformat.writes(notebook)
    pages.notebook(notebook, "02_rules", "Rules?", ".")
    assert nbformat.writes(notebook) == before


class Page(html.parser.HTMLParser):
    """Collects a page's tags, and the text of its styles."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.styles, self._open = [], [], ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self._open = tag

    def handle_endtag(self, tag):
        self._open = ""

    def handle_data(self, data):
        if self._open == "style":
            self.styles.append(data)

    def named(self, *names):
        return [attributes for tag, attributes in self.tags if tag in names]


@pytest.mark.parametrize("name", ["01_ok", "02_fails", "03_killed", "06_big", "WORDS", "index"])
def test_a_page_loads_nothing_from_outside(ran, name):
    page = Page(ran.page(name))
    assert not page.named("script", "iframe", "object", "embed", "base", "link", "video", "audio")
    assert all(image["src"].startswith("data:") for image in page.named("img"))
    for tag, attributes in page.tags:
        # A remote address may stand in a link for people only.
        far = [
            name for name, value in attributes.items() if re.search(r"(https?:)?//", value or "")
        ]
        assert far in ([], ["href"] if tag == "a" else [], ["xmlns"]), (tag, attributes)
    for style in page.styles:
        assert not re.search(r"@import|url\(\s*['\"]?\s*(?!data:|#)\S", style)
    policies = [meta["content"] for meta in page.named("meta") if "http-equiv" in meta]
    assert policies == [POLICY]
    assert "default-src 'none'" in POLICY and "script-src" not in POLICY


def test_the_pages_test_can_fail(ran):
    bad = "<img src='https://example.org/a.png'><style>p {background: url(https://x/y)}</style>"
    page = Page(bad)
    assert page.named("img")[0]["src"].startswith("https:")
    assert re.search(r"url\(\s*['\"]?\s*(?!data:|#)\S", page.styles[0])


def test_a_page_keeps_text_links_and_alternatives(ran):
    page = ran.page("06_big")
    assert '<a href="https://example.org">a link</a>' in page
    assert ">Open in Colab</a>" in page
    assert '<a href="07_child.html">the next</a>' in page
    assert "a far picture" in page and "kept</p>" in page
    assert 'alt="one point"' in page
    assert "A widget is here: open the notebook itself" in page
    assert '<a href="index.html">← Map of the course</a>' in page


def test_a_text_beside_the_notebooks_is_a_page_too_and_links_lead_there_and_back(ran):
    assert '<a href="WORDS.html#TPU-VM">TPU VM</a>' in ran.page("06_big")
    page = ran.page("WORDS")
    assert "<title>Words &amp; more</title>" in page
    assert 'id="TPU-VM"' in page and '<a href="06_big.html">big</a>' in page


def test_texts_of_a_notebook_are_escaped_in_the_map(ran):
    page = ran.page("index")
    assert "Big code? &lt;script&gt;alert(2)&lt;/script&gt;" in page
    assert "no &lt;b&gt;such&lt;/b&gt; [thing]" in page
    assert "<b>" not in page
    assert "<title>Big code? &lt;script&gt;" in ran.page("06_big")


def test_the_map_can_be_used_without_seeing_it(ran):
    text = ran.page("index")
    page = Page(text)
    assert page.named("html") == [{"lang": "en"}]
    assert {"name": "viewport", "content": "width=device-width, initial-scale=1"} in page.named(
        "meta"
    )
    assert len(page.named("h1")) == 1 and len(page.named("title")) == 1
    assert len(page.named("main")) == len(page.named("caption")) == 1
    assert {head["scope"] for head in page.named("th")} == {"col", "row"}
    # The state is a word; its sign is not read aloud.
    signs = re.findall(r'<span aria-hidden="true">(.)</span> (passed|failed|died)</span>', text)
    assert len(signs) == 7
    assert Page(ran.page("01_ok")).named("html") == [{"lang": "en"}]


def luminance(colour):
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [x / 12.92 if x <= 0.03928 else ((x + 0.055) / 1.055) ** 2.4 for x in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_the_maps_colours_are_readable_in_light_and_dark(ran):
    """Contrast as WCAG 2.2 defines it (1.4.3): at least 4.5 to 1."""
    light, dark = re.findall(r"--paper:.*?\}", "".join(Page(ran.page("index")).styles), re.DOTALL)
    for theme in (light, dark):
        colours = dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", theme))
        for ground in ("paper", "card"):
            for ink in ("ink", "soft", "link", "good", "bad", "wait"):
                both = sorted(luminance(colours[name]) for name in (ground, ink))
                assert (both[1] + 0.05) / (both[0] + 0.05) >= 4.5, (ground, ink)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.04, "0.0 s"), (9.94, "9.9 s"), (9.96, "10 s"), (59.6, "1 min 00 s"), (125, "2 min 05 s")],
)
def test_times_are_written_for_people(seconds, text):
    assert pages.duration(seconds) == text


@pytest.mark.parametrize(
    ("size", "text"), [(54_300_000, "54 MB"), (999_600_000, "1.0 GB"), (25_300_000_000, "25.3 GB")]
)
def test_memory_is_written_for_people(size, text):
    assert pages.memory(size) == text
