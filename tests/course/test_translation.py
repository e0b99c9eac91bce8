"""From the English to a translation and back: extraction, fuzzy messages, notebooks, pages."""

import json
import re

import pytest
from conventions import ROOT, release
from typer.testing import CliRunner

from course import catalog, translation
from course.commands.app import app
from helpers.base import language
from helpers.base.errors import CourseError

CODE = "eo"  # a pseudo-language under the code of Esperanto


def pseudo(english: str) -> str:
    """Mark each line that has words, where Markdown allows it: this is the translation."""
    return re.sub(r"(?m)^([^\w\n]*)(.*[a-z].*)$", r"\1‹\2›", english)


def markdown_of(path, text: str) -> str:
    """What a reader follows links in: a page, or the Markdown of a notebook."""
    if path.suffix != ".ipynb":
        return text
    cells = json.loads(text)["cells"]
    return "".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")


def test_another_language_is_one_more_file_and_its_links_lead_to_what_there_is():
    po = language.read(CODE)
    for place, english in translation.collect_texts():
        po.add(english, pseudo(english), context=place)
    edition = translation.generate(CODE, po)
    assert len(edition) == len(catalog.notebooks()) + len(translation.PAGES) + 2
    for path, text in edition.items():
        for link in re.findall(r"\]\((?!#|\w+:)([^)#\s›]+)", markdown_of(path, text)):
            target = (path.parent / link).resolve()
            assert target in edition or target.exists(), (path.name, link)
        assert f"/blob/{release()}/notebooks/{CODE}/" in text or path.suffix == ".md"


def test_what_a_cell_printed_stays_with_its_program(monkeypatch, tmp_path):
    path = tmp_path / "ko" / "00_start_here.ipynb"
    path.parent.mkdir()
    text = (ROOT / "notebooks/ko" / path.name).read_text("utf-8").replace("준비됨: T", "kept: T")
    path.write_text(text.replace("1 mul", "gone").replace("size**3", "size**4"))
    monkeypatch.setattr(catalog, "NOTEBOOKS", tmp_path)
    monkeypatch.setattr(translation, "PAGES", ())
    notebook = translation.generate("ko", language.read("ko"))[path]
    assert "kept: T" in notebook
    assert "1 mul" in notebook
    assert "gone" not in notebook


def test_a_changed_text_keeps_its_translation_and_shows_the_english_until_it_is_redone():
    po = language.read("eo")
    place, english, changed_english = "a.ipynb one", "Some words of it.", "Some words of them."
    po.add(english, "몇 마디.", context=place)
    translation.update(po, [(place, changed_english), ("a.ipynb two", "More.")])
    assert translation.to_do(po) == ["a.ipynb one", "a.ipynb two"]
    note = f"*{translation.CHANGED}*"
    assert translation.translate(po, place, changed_english) == f"{note}\n\n{changed_english}"
    translation.update(po, [(place, changed_english)])
    assert po.get(changed_english, place).fuzzy  # until someone takes the mark away
    po.get(changed_english, place).flags.clear()
    translation.update(po, [("moved.ipynb one", changed_english)])
    assert translation.translate(po, "moved.ipynb one", changed_english) == "몇 마디."
    assert translation.to_do(po) == []


CELL = '''\
# @title One
# Two,
# three.
def f():
    """Four

    x.
    """
    # five
    return "# no"  # six
'''


def test_comments_titles_and_docstrings_of_a_cell_are_texts_and_its_program_stays():
    texts = []

    def collect(place, text):
        texts.append((place, text))
        return text

    assert translation.rewrite_remarks(CELL, collect) == CELL
    assert texts == [
        (translation.TITLES, "One"),
        (translation.COMMENTS, "Four\n\nx."),
        (translation.COMMENTS, "Two,\nthree."),
        (translation.COMMENTS, "five"),
        (translation.COMMENTS, "six"),
    ]
    assert "    # FIVE\n" in translation.rewrite_remarks(CELL, lambda _, text: text.upper())


@pytest.mark.parametrize(
    ("beginning", "translated"),
    [("Four", 'x """y"""'), ("Four", "C:\\U"), ("six", "x\ry"), ("One", "\0")],
)
def test_a_translation_that_would_change_the_program_is_refused(beginning, translated):
    def say(_, text):
        return translated if text.startswith(beginning) else text

    with pytest.raises(CourseError, match=f"{beginning}.*can't stand in a program"):
        translation.rewrite_remarks(CELL, say)


@pytest.mark.parametrize("name", translation.PAGES)
def test_the_blocks_of_a_page_are_the_page(name):
    text = (catalog.NOTEBOOKS / name).read_text("utf-8")
    blocks = translation.blocks(text)
    assert "".join(blocks) == text
    assert not any(block.count("\n| ") for block in blocks)


def test_messages_of_code_and_data_are_whole_and_their_values_are_blanks(tmp_path, monkeypatch):
    monkeypatch.setattr(translation, "ROOT", tmp_path)
    code = tmp_path / "a.py"
    code.write_text(
        "'A docstring of words.'\ndef f(x):\n    'Another docstring here.'\n"
        '    return f"It is {x:.1f} of {x[0]!r} here", "two words", {"a key of words": x}\n'
    )
    assert list(translation.code_texts(code)) == [("a.py", "It is {x} of {x[0]} here")]
    data = tmp_path / "a.toml"
    data.write_text('[q]\nbecause = "B."\nwrong.a = "A."\nwrong."is 5" = "def f(): 5"\nx = "no"\n')
    texts = [("a.toml q.because", "B."), ("a.toml q.wrong.a", "A.")]
    assert list(translation.data_texts(data)) == texts


@pytest.fixture
def texts(tmp_path, monkeypatch):
    """What is to be translated in a course without notebooks: one text."""
    texts = [("a.ipynb one", 'Say "it",\n\twith \\ and {x}.')]
    monkeypatch.setattr(language, "LOCALE", tmp_path)
    monkeypatch.setattr(catalog, "BUILD", tmp_path)
    monkeypatch.setattr(translation, "collect_texts", lambda: texts)
    monkeypatch.setattr(translation, "generate", lambda code, po: {})
    return texts


def test_it_is_written_once_and_what_leaves_it_is_kept(texts, tmp_path, capsys):
    place, english = texts[0]
    assert translation.write("eo")[1] == [language.file("eo")]
    assert translation.write("eo")[1] == []
    assert language.read("eo").get(english, place) is not None
    language.file("eo").write_text(language.file("eo").read_text().rstrip('\n"') + '"Mine."\n')
    assert translation.write("eo")[0] == []
    assert capsys.readouterr().err == ""
    texts[:] = [("a.ipynb two", "Another thing by far.")]
    translation.write("eo")
    (copy,) = tmp_path.glob("earlier/2*/*/eo.po")
    assert "Mine." in copy.read_text()
    assert str(copy) in capsys.readouterr().err


def test_a_file_that_is_edited_meanwhile_or_can_t_be_read_is_not_written_over(texts, monkeypatch):
    translation.write("eo")

    def edit(*_):
        language.file("eo").write_text("<<<<<<< HEAD\n")
        return {}

    monkeypatch.setattr(translation, "generate", edit)
    with pytest.raises(CourseError, match="The change would be lost"):
        translation.write("eo")
    with pytest.raises(CourseError, match=r"eo\.po can't be read"):
        language.read("eo")
    language.file("old").touch()
    assert "no translation into 'old'" in CliRunner().invoke(app, ["translate"]).output
