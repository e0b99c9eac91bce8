"""A notebook becomes a deck: what belongs together, in the order of question, code and output."""

import re

import nbformat
import pytest
from bs4 import BeautifulSoup
from conventions import NOTEBOOKS
from made_notebooks import DATA
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from helpers.course import map as course
from helpers.course.editions import slides
from helpers.exercises import Question

CLAIM = "A claim that takes its time:" + " word" * 12
VOTE = "note: Let them vote, then press on.\n\n- (a) It is not."
BEGINS = ("slide", "subslide")
TABLE = "<table>" + "<tr><td>1</td></tr>" * 30 + "</table>"


def text(source: str, slide: str, *tags: str) -> nbformat.NotebookNode:
    metadata = {"slideshow": {"slide_type": slide}, "tags": [*tags]}
    return new_markdown_cell(source, metadata=metadata)


def code(source: str, slide: str, *tags: str, shows: tuple = ()) -> nbformat.NotebookNode:
    alt = {"image/png": {"alt": "one point"}}
    outputs = [new_output("display_data", data=data, metadata=alt) for data in shows]
    metadata = {"slideshow": {"slide_type": slide}, "tags": [*tags]}
    return new_code_cell(source, outputs=outputs, metadata=metadata)


def plain(text: str) -> dict:
    return {"text/plain": text}


def arranged(*cells: nbformat.NotebookNode) -> list[list[str]]:
    """Of each slide its parts: a text, a code, an output (its first line)."""
    found: list[list[str]] = []
    for cell in slides.arrange(new_notebook(cells=cells), "01").cells:
        mark = cell.metadata.slideshow.slide_type
        output = [slides._shown(output) for output in cell.get("outputs", ())]
        if mark in BEGINS:
            found.append([])
        assert mark == "notes" or (mark == "fragment") == bool(found[-1])
        found[-1].append(f"{'note: ' * (mark == 'notes')}{[*output, cell.source][0]}")
    return found


def test_what_belongs_together_shares_a_slide_and_appears_part_by_part():
    assert arranged(
        text(f"## One\n\n{CLAIM}", "slide"),
        code("f(1)", "subslide", shows=(plain("2"), plain("3"))),
        text("It shows this.", "-"),
        text(f"### Two\n\n{CLAIM}", "subslide"),
    ) == [[f"## One\n\n{CLAIM}", "f(1)", "2", "3", "It shows this."], [f"### Two\n\n{CLAIM}"]]


def test_cells_that_a_class_does_not_need_are_left_out():
    assert arranged(
        text(f"# Q\n\n[![Open](a.svg)](https://a.org)\n\n{CLAIM}", "slide"),
        code("import os", "skip", "setup"),
        text("more", "-", "beyond-core"),
        code("plot()", "-", "hide-input", shows=(plain("drawn"),)),
        text("Recap.\n\n*A good place to stop. To come back,\ndo this.*", "-"),
    ) == [[f"# Q\n\n{CLAIM}", "drawn", "Recap."]]


def test_few_words_join_what_follows_or_at_the_end_what_stands_before():
    following = text(f"## Three\n\n{CLAIM}", "slide")
    few, last = text("## Two", "slide"), text("## Four", "slide")
    picture = code("p", "slide", "hide-input", shows=({"image/png": DATA["picture"]},))
    assert [len(slide) for slide in arranged(few, following, last)] == [3]
    assert [len(slide) for slide in arranged(picture, following)] == [1, 1]


def test_a_full_slide_ends_before_the_code_and_code_that_is_too_long_before_its_output():
    long = "\n".join(["x = 1"] * 20)
    output = plain("\n".join("abc"))
    assert [
        len(slide)
        for slide in arranged(
            text(f"## One\n\n{CLAIM * 12}", "slide"), code(long, "-", shows=(output,))
        )
    ] == [1, 2]
    shows = (plain("\n".join("x" * 18)),)
    assert [len(slide) for slide in arranged(code(long, "slide", shows=shows))] == [1, 1]
    assert len(arranged(text("## Long\n\n" + f"{CLAIM * 9}\n\n" * 5, "slide"))) == 2


@pytest.mark.parametrize(
    ("shown", "kept"),
    [
        (new_output("stream", text="line\n" * 40), "… (22 more lines in the notebook)"),
        (new_output("display_data", data={"text/html": TABLE}), "… (17 more rows in the notebook)"),
    ],
)
def test_an_output_that_would_scroll_is_cut_and_says_so(shown, kept):
    cell = code("f()", "slide")
    cell.outputs = [shown]
    ((_, output),) = arranged(cell)
    assert kept in output and len(output.splitlines()) < 20


def test_a_question_comes_before_the_code_and_its_answer_after_the_output(monkeypatch):
    known = {"01-a": Question(right="b", because="It is so.", wrong={"a": "It is not."})}
    monkeypatch.setattr(slides.exercises, "questions", lambda number: known)
    asked = f"**Before you run it.** What comes? (a) … (b) … {CLAIM}"
    assert arranged(
        text(f"## One\n\n{CLAIM * 6}", "slide"),
        text(asked, "-"),
        code('answer = None\ncheck("01-a", answer)', "-", "question", shows=(plain("not yet"),)),
        code("f(1)", "-", shows=(plain("2"),)),
    )[1] == [asked, "f(1)", "2", "**(b)** It is so.", VOTE]
    little = [text(f"## One\n\n{CLAIM}", "slide"), text(asked, "-")]
    assert [len(slide) for slide in arranged(*little, code("f(1)", "-"))] == [3]
    left_out = code('answer = None\ncheck("01-a", answer)', "skip", "question", "beyond-core")
    shown = code("f(1)", "-", shows=(plain("2"),))
    assert arranged(text(f"## One\n\n{CLAIM}", "slide"), left_out, shown)[-1][-1] == "2"


def test_the_speakers_note_of_a_section_stands_behind_its_heading(monkeypatch):
    note = {"ask": "How many?", "wrong": ["Two: no."], "minutes": 5}
    monkeypatch.setattr(slides, "notes", lambda code: {"01": {"One": note}})
    (found,) = arranged(text(f"## One\n\n{CLAIM}", "slide"), text("More.", "-"))
    assert found[1] == "note: **5 minutes.** How many?\n\n- Two: no."


@pytest.mark.parametrize("code", ["en", "ko"])
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem[:2])
def test_a_deck_is_short_without_slides_of_few_words_and_each_note_finds_its_heading(path, code):
    path = course.edition(code)[0] / path.name
    deck = slides.arrange(slides.read(path), path.stem[:2], code).cells
    notes = slides.notes(code).get(path.stem[:2], {})
    said = [cell.source for cell in deck if cell.metadata.slideshow.slide_type == "notes"]
    assert len(said) >= len(notes) and (code == "en" or all(re.search("[가-힣]", x) for x in said))
    texts = "\n".join(cell.source for cell in deck if cell.cell_type == "markdown")
    assert set(notes) <= set(re.findall(r"(?m)^#+ (.+)$", texts))
    assert not re.search(r"(?m)^\*(A good place to stop|여기서 쉬어)", texts)
    assert slides.count(nbformat.from_dict({"cells": deck})) <= slides.MOST
    begun = [at for at, cell in enumerate(deck) if cell.metadata.slideshow.slide_type in BEGINS]
    parts = [deck[a:b] for a, b in zip(begun, [*begun[1:], None], strict=True)]
    assert [slide[0].source for slide in parts if slides._short(slide)] == []


def test_a_translated_text_leads_to_the_code_that_its_english_leads_to():
    name = "08_preflight.ipynb"
    english, korean = (slides.read(course.edition(code)[0] / name) for code in ("en", "ko"))
    assert slides._leading(korean, "08", "ko") == slides._leading(english, "08", "en")
    assert slides._leading(korean, "08", "ko") != slides._leading(korean, "08", "en")


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
    widget = {"application/vnd.jupyter.widget-view+json": {}, "text/plain": "Slider()"}
    cells = [
        text(f"# What is <it>?\n\nSee [the next](02_b.ipynb). {CLAIM}", "slide"),
        code("shown = 1", "-", shows=(widget,)),
        code("plot = 1", "subslide", "hide-input", shows=({"image/png": DATA["picture"]},)),
        text(
            f"## Two\n\n<script>alert(1)</script> {CLAIM} <img src='https://x.invalid/a'>", "slide"
        ),
    ]
    path = tmp_path_factory.mktemp("notebooks") / "01_a.ipynb"
    node = slides.arrange(new_notebook(cells=cells), "01")
    return BeautifulSoup(slides.deck(node, path, "What is it?", reveal), "html.parser")


def test_outputs_of_hidden_inputs_are_shown_and_links_lead_to_decks(deck):
    sections = deck.select(".slides > section")
    assert [len(section.select(":scope > section")) for section in sections] == [1, 1]
    text = deck.select_one(".slides").get_text()
    assert "shown" in text and "plot" not in text
    assert [image["alt"] for image in deck.select("img")] == ["one point"]
    assert len(deck.select(".fragment")) == 3
    assert "02_b.html" in [link["href"] for link in deck.select("a[href]")]


def test_a_deck_has_the_language_of_its_folder(reveal, deck):
    node = slides.arrange(new_notebook(cells=[text(f"# Eins\n\n{CLAIM}", "slide")]), "01", "ko")
    page = slides.deck(node, course.edition("ko")[0] / "01_a.ipynb", "One", reveal)
    assert (deck.html["lang"], BeautifulSoup(page, "html.parser").html["lang"]) == ("en", "ko")


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
