"""From the English to a translation and back: extraction, fuzzy messages, notebooks, pages."""

import json
import re

import pytest
from conventions import ROOT
from typer.testing import CliRunner

from course import catalog, translation
from course.commands.app import app
from course.translation import said, to_do, update
from helpers.base import language
from helpers.base.errors import CourseError

CODE = "eo"  # a pseudo-language under the code of Esperanto


def pseudo(english: str) -> str:
    """Mark each line that has words, where Markdown allows it: this is the translation."""
    return re.sub(r"(?m)^([^\w\n]*)(.*[a-z].*)$", r"\1‹\2›", english)


def test_another_language_is_one_more_file_and_its_links_lead_to_what_there_is():
    po = language.read(CODE)
    for where, english in translation.texts():
        po.add(english, pseudo(english), context=where)
    made = translation.generated(CODE, po)
    assert len(made) == len(catalog.notebooks()) + len(translation.PAGES) + 2
    for path, text in made.items():
        sources = [text]
        if path.suffix == ".ipynb":
            cells = json.loads(text)["cells"]
            sources = ["".join(c["source"]) for c in cells if c["cell_type"] == "markdown"]
        for link in re.findall(r"\]\((?!#|\w+:)([^)#\s›]+)", "".join(sources)):
            target = (path.parent / link).resolve()
            assert target in made or target.exists(), (path.name, link)
        assert f"/blob/main/notebooks/{CODE}/" in text or path.suffix == ".md"


def test_what_a_cell_printed_stays_with_its_program(monkeypatch, tmp_path):
    path = tmp_path / "ko" / "00_start_here.ipynb"
    path.parent.mkdir()
    text = (ROOT / "notebooks/ko" / path.name).read_text("utf-8").replace("준비됨: T", "kept: T")
    path.write_text(text.replace("1 mul", "gone").replace("size**3", "size**4"))
    monkeypatch.setattr(catalog, "NOTEBOOKS", tmp_path)
    monkeypatch.setattr(translation, "PAGES", ())
    made = translation.generated("ko", language.read("ko"))[path]
    assert "kept: T" in made and "1 mul" in made and "gone" not in made


def test_a_changed_text_keeps_its_translation_and_shows_the_english_until_it_is_redone():
    po = language.read("eo")
    one, other = ("a.ipynb one", "Some words of it."), ("a.ipynb one", "Some words of them.")
    po.add(one[1], "몇 마디.", context=one[0])
    update(po, [other, ("a.ipynb two", "More.")])
    assert to_do(po) == ["a.ipynb one", "a.ipynb two"]
    assert said(po, *other) == f"*{translation.CHANGED}*\n\nSome words of them."
    update(po, [other])
    assert po.get(other[1], other[0]).fuzzy  # until somebody takes the mark away
    po.get(other[1], other[0]).flags.clear()
    update(po, [("moved.ipynb one", other[1])])
    assert said(po, "moved.ipynb one", other[1]) == "몇 마디."
    assert to_do(po) == []


def test_comments_titles_and_docstrings_of_a_cell_are_texts_and_its_program_stays():
    cell = (
        "# @title One\n# Two,\n# three.\ndef f():\n"
        '    """Four\n\n    x.\n    """\n    # five\n    return "# no"  # six\n'
    )
    found = []
    assert translation.commented(cell, lambda *text: found.append(text) or text[1]) == cell
    comments = ["Four\n\nx.", "Two,\nthree.", "five", "six"]
    assert found == [(translation.TITLES, "One"), *((translation.COMMENTS, x) for x in comments)]
    assert "    # FIVE\n" in translation.commented(cell, lambda _, text: text.upper())
    for at, bad in (("Four", 'x """y"""'), ("Four", "C:\\U"), ("six", "x\ry"), ("One", "\0")):
        with pytest.raises(CourseError, match=f"{at}.*can't stand in a program"):
            translation.commented(cell, lambda _, x, at=at, b=bad: b if x.startswith(at) else x)


def test_the_blocks_of_a_page_are_the_page():
    for text in ((catalog.NOTEBOOKS / name).read_text("utf-8") for name in translation.PAGES):
        assert "".join(translation.blocks(text)) == text
        assert not any(block.count("\n| ") for block in translation.blocks(text))


def test_messages_of_code_and_data_are_whole_and_their_values_are_blanks(tmp_path, monkeypatch):
    monkeypatch.setattr(translation, "ROOT", tmp_path)
    code, data = tmp_path / "a.py", tmp_path / "a.toml"
    code.write_text(
        "'A docstring of words.'\ndef f(x):\n    'Another docstring here.'\n"
        '    return f"It is {x:.1f} of {x[0]!r} here", "two words", {"a key of words": x}\n'
    )
    assert [*translation._code(code)] == [("a.py", "It is {x} of {x[0]} here")]
    data.write_text('[q]\nbecause = "B."\nwrong.a = "A."\nwrong."is 5" = "def f(): 5"\nx = "no"\n')
    assert [*translation._data(data)] == [("a.toml q.because", "B."), ("a.toml q.wrong.a", "A.")]


def test_it_is_written_once_and_what_leaves_it_is_kept(tmp_path, monkeypatch, capsys):
    texts = [("a.ipynb one", 'Say "it",\n\twith \\ and {x}.')]
    monkeypatch.setattr(language, "LOCALE", tmp_path)
    monkeypatch.setattr(translation, "texts", lambda: texts)
    monkeypatch.setattr(translation, "generated", lambda code, po: {})
    monkeypatch.setattr(catalog, "BUILD", tmp_path)
    assert [len(translation.write("eo")[1]) for _ in range(2)] == [1, 0]
    assert language.read("eo").get(texts[0][1], texts[0][0]) is not None
    language.file("eo").write_text(language.file("eo").read_text().rstrip('\n"') + '"Mine."\n')
    assert translation.write("eo")[0] == [] and capsys.readouterr().err == ""
    texts[:] = [("a.ipynb two", "Another thing by far.")]
    translation.write("eo")
    (kept,) = tmp_path.glob("earlier/2*/*/eo.po")
    assert "Mine." in kept.read_text() and str(kept) in capsys.readouterr().err
    edited = lambda *_: language.file("eo").write_text("<<<<<<< HEAD\n") and {}  # noqa: E731
    monkeypatch.setattr(translation, "generated", edited)
    with pytest.raises(CourseError, match="The change would be lost"):
        translation.write("eo")
    with pytest.raises(CourseError, match=r"eo\.po can't be read"):
        language.read("eo")
    (tmp_path / "old.po").touch()
    assert "no translation into 'old'" in CliRunner().invoke(app, ["translate"]).output
