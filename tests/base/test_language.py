"""Messages in another language: which one, and what becomes of blanks."""

import re

import pytest
from babel.messages import Catalog, pofile
from cases import cases

from helpers.base import language
from helpers.base.errors import CourseError


@pytest.fixture
def korean(tmp_path, monkeypatch):
    """A course in the folder of the test with a small translation."""
    catalog = Catalog(locale="ko")
    for english, korean in cases(__file__, "messages").items():
        catalog.add(english, korean, flags={"fuzzy"} if english == "old" else ())
    folder = tmp_path / "notebooks" / "locale"
    folder.mkdir(parents=True)
    with (folder / "ko.po").open("wb") as stream:
        pofile.write_po(stream, catalog)
    monkeypatch.setattr(language, "NOTEBOOKS", tmp_path / "notebooks")
    monkeypatch.setattr(language, "WORK", tmp_path / "work")
    monkeypatch.setattr(language, "LOCALE", folder)
    language._messages.cache_clear()
    yield tmp_path
    language._messages.cache_clear()


@pytest.mark.parametrize(("environment", "folder", "code"), cases(__file__, "language_of"))
def test_the_folder_of_notebooks_decides_then_the_environment(korean, environment, folder, code):
    assert language.language(environment, korean / folder) == code


@pytest.mark.parametrize(("text", "said"), cases(__file__, "translated"))
def test_a_message_is_translated_with_what_fills_its_blanks(korean, text, said, monkeypatch):
    assert language.translated(text, "ko") == said
    monkeypatch.setattr(language, "file", None)  # English reads no translation
    assert language.translated(text, "en") == text


def test_a_translation_that_cant_be_read_leaves_messages_in_english(korean, capsys):
    path = language.file("ko")
    path.write_text("<<<<<<< HEAD\n" + path.read_text("utf-8"), "utf-8")  # git's, of a merge
    for _ in range(2):  # and it is said once
        assert language.translated("The disk", "ko") == "The disk"
    out, err = capsys.readouterr()
    assert not out
    assert re.fullmatch(r"ko\.po can't be read.*on 0.*Messages are in English.\n", err)


def test_a_message_that_is_there_twice_is_told_and_a_stray_file_is_no_language(korean):
    path = language.file("ko")
    for name in ("ko.backup.po", "ko (copy).po", "ko_old.po"):
        path.with_name(name).write_bytes(path.read_bytes())
    assert language.translations() == ["ko"]
    path.write_text(path.read_text("utf-8"), "utf-8-sig", newline="\r\n")  # as Windows does
    path.write_text(path.read_text("utf-8") + '\nmsgid "a smaller batch"\nmsgstr "x"\n', "utf-8")
    with pytest.raises(CourseError, match=r"'a smaller batch' is there twice, again on [0-9]"):
        language.read("ko")
