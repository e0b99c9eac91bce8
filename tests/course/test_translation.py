"""From the English to a translation and back: extraction, fuzzy messages, notebooks, pages."""

import ast
import json
import pathlib
import re

import pytest
from babel.messages import pofile
from conventions import ROOT

from helpers.base import language
from helpers.base.errors import CourseError
from helpers.course import map as course
from helpers.course.editions import translation
from helpers.course.editions.translation import Text, updated

CODE = "eo"  # a pseudo-language under the code of Esperanto
MARKED = re.compile(r"‹.*›", re.DOTALL)


def pseudo(english: str) -> str:
    """Mark each line that has words, where Markdown allows it: this is the translation."""
    lines = english.split("\n")
    return "\n".join(
        re.sub(r"^(\W*)(.*\w.*)$", r"\1‹\2›", line) if re.search("[a-z]", line) else line
        for line in lines
    )


@pytest.fixture
def translated(tmp_path, monkeypatch):
    """The pseudo-language's catalog, whole, beside a copy of nothing else."""
    monkeypatch.setattr(language, "LOCALE", tmp_path)
    catalog = translation.read(CODE)
    for text in translation.texts():
        catalog.add(text.english, pseudo(text.english), context=text.where)
    return catalog


def test_another_language_is_one_more_file(translated):
    made = translation.generated(CODE, translated)
    assert len(made) == len(course.notebooks()) + len(translation.PAGES) + 2
    for notebook in course.notebooks():
        there = json.loads(notebook.path.read_text("utf-8"))["cells"]
        here = json.loads(made[course.NOTEBOOKS / CODE / notebook.path.name])["cells"]
        assert [cell["id"] for cell in here] == [cell["id"] for cell in there]
        for english, other in zip(there, here, strict=True):
            if english["cell_type"] == "code":
                assert other == english
            elif re.search("[a-z]", "".join(english["source"])):
                assert MARKED.search("".join(other["source"])), english["id"]


def test_links_of_an_edition_lead_to_what_there_is(translated):
    made = translation.generated(CODE, translated)
    for path, text in made.items():
        sources = [text]
        if path.suffix == ".ipynb":
            cells = json.loads(text)["cells"]
            sources = ["".join(c["source"]) for c in cells if c["cell_type"] == "markdown"]
        for link in re.findall(r"\]\((?!#|\w+:)([^)#\s›]+)", "".join(sources)):
            target = (path.parent / link).resolve()
            assert target in made or target.exists(), (path.name, link)
        assert f"/blob/main/notebooks/{CODE}/" in text or path.suffix == ".md"


def test_a_changed_cell_keeps_its_translation_and_shows_the_english_until_it_is_redone():
    old = updated(translation._catalog("ko"), [Text("a.ipynb one", "Some words.")])
    old.get("Some words.", "a.ipynb one").string = "몇 마디."
    new = updated(old, [Text("a.ipynb one", "Other words."), Text("a.ipynb two", "More.")])
    message = new.get("Other words.", "a.ipynb one")
    assert message.fuzzy and message.string == "몇 마디."
    count = translation.count(new)
    assert (count.translated, count.fuzzy, count.missing) == (0, ("a.ipynb one",), ("a.ipynb two",))
    shown = translation._said(new, Text("a.ipynb one", "Other words."))
    assert shown == f"*{translation.CHANGED}*\n\nOther words."
    again = updated(new, [Text("a.ipynb one", "Other words.")])
    assert again.get("Other words.", "a.ipynb one").fuzzy  # until somebody takes the mark away


def test_in_a_file_without_names_the_most_alike_is_taken():
    texts = [Text("doctor.py", "it is held by {name}"), Text("doctor.py", "make room for a run")]
    old = updated(translation._catalog("ko"), texts)
    for message, string in zip((m for m in old if m.id), ("잡혀 있음", "자리 만들기"), strict=True):
        message.string = string
    texts = [Text("doctor.py", "it is held by {name} now"), Text("doctor.py", "nothing alike")]
    new = updated(old, texts)
    assert new.get(texts[0].english, "doctor.py").string == "잡혀 있음"
    assert new.get(texts[1].english, "doctor.py").string == ""


@pytest.mark.parametrize("name", translation.PAGES)
def test_the_blocks_of_a_page_are_the_page(name):
    text = (course.NOTEBOOKS / name).read_text("utf-8")
    assert "".join(translation.blocks(text)) == text
    assert not any(block.count("\n| ") for block in translation.blocks(text))


def test_a_note_stands_below_a_heading_and_in_no_table():
    catalog = translation._catalog("ko")

    def shown(english):
        return translation._said(catalog, Text("x", english))

    assert shown("## Title\n\nText.") == "## Title\n\n*Not translated yet.*\n\nText."
    assert shown("## Title") == "## Title\n\n*Not translated yet.*"
    assert shown("| a row |") == "| a row |" and shown("- an item") == "- an item"


def test_messages_of_code_are_whole_and_their_values_are_blanks():
    source = """
'A docstring of words.'
def f(x):
    'Another docstring here.'
    names = {"a key": "its value"}["a key"], x == "compared"
    return f"It is {x:.1f} of {x[0]!r} for {'one inside it' if x else 'no'}", "two words"
"""
    assert list(translation._strings(ast.parse(source))) == [
        "its value",
        "It is {x} of {x[0]} for {'one inside it' if x else 'no'}",
        "one inside it",
        "no",
        "two words",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [("msgid nonsense", "ko.po is damaged."), (b"\xff\xfe".decode("latin-1"), "ko.po is damaged.")],
)
def test_a_damaged_translation_is_said(tmp_path, monkeypatch, text, message):
    monkeypatch.setattr(language, "LOCALE", tmp_path)
    (tmp_path / "ko.po").write_text(text, "latin-1")
    with pytest.raises(CourseError, match=re.escape(message)):
        translation.read("ko")


def test_a_language_that_is_none_is_said():
    with pytest.raises(CourseError, match="'korean!' is no language"):
        translation.read("korean!")


def test_po_tools_read_the_file(tmp_path):
    catalog = updated(translation._catalog("ko"), [Text("a b", 'Say "it",\n\twith \\ and {x}.')])
    path = pathlib.Path(tmp_path / "ko.po")
    path.write_text(translation._written(catalog), "utf-8")
    with path.open("rb") as stream:
        assert pofile.read_po(stream).get('Say "it",\n\twith \\ and {x}.', "a b") is not None
    assert str(ROOT) not in path.read_text("utf-8")
