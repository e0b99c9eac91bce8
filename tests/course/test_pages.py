"""What axe-core (`make browser`) found missing in nbconvert's pages stays in them."""

import nbformat
from bs4 import BeautifulSoup
from nbformat import v4

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
