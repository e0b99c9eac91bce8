"""The learner's copies: made once, renewed with the course, and no answer is lost."""

import json

import nbformat
import pytest
from made_notebooks import write
from nbformat.v4 import new_code_cell, new_output
from typer.testing import CliRunner

from helpers.base import language
from helpers.base.errors import CourseError
from helpers.course import working
from helpers.course.commands import course
from helpers.course.commands.app import app


@pytest.fixture
def folder(tmp_path):
    path = write(tmp_path / "notebooks", "02_b", "print(1)")
    node = nbformat.read(path, 4)
    node.cells.append(new_code_cell("stub", metadata={"tags": ["exercise"]}, id="exercise-1"))
    node.cells.append(new_code_cell("answer = None", metadata={"tags": ["question"]}, id="asked"))
    nbformat.write(node, path)
    (path.parent / "TEXT.md").write_text("text")
    (path.parent / "data").mkdir()
    (path.parent / "data/x.txt").write_text("x")
    return path.parent


def change(path, old, new):
    path.write_text(path.read_text("utf-8").replace(old, new), "utf-8")


def test_answers_survive_an_update_and_the_copy_as_it_was_is_kept(folder, tmp_path):
    work = tmp_path / "work"
    copy = work / "02_b.ipynb"
    assert working.prepare(work, folder) == []
    assert (work / "TEXT.md").read_text() + (work / "data/x.txt").read_text() == "textx"
    change(copy, '"stub"', '"my answer"')
    change(copy, "print(1)", "print(1) # mine")
    mine = copy.read_text("utf-8")
    assert working.prepare(work, folder) == []  # nothing new
    assert copy.read_text("utf-8") == mine
    change(folder / "02_b.ipynb", "print(1)", "print(2)")
    assert working.prepare(work, folder) == [copy]
    sources = [cell.source for cell in nbformat.read(copy, 4).cells]
    assert sources[-3:] == ["print(2)", "my answer", "answer = None"]
    assert (work / "earlier/02_b.ipynb").read_text("utf-8") == mine
    assert working.prepare(work, folder) == []


def test_what_a_notebook_shows_is_copied_and_stored_answers_are_not(folder, tmp_path):
    node = nbformat.read(folder / "02_b.ipynb", 4)
    node.cells[1].outputs = [new_output("stream", text="the answer")]
    nbformat.write(node, folder / "02_b.ipynb")
    working.prepare(tmp_path / "work", folder)
    (folder / "TEXT.md").write_text("new text")
    working.prepare(tmp_path / "work", folder)
    assert (tmp_path / "work/TEXT.md").read_text() == "new text"
    assert (tmp_path / "work/data/x.txt").read_text() == "x"
    assert "the answer" not in (tmp_path / "work/02_b.ipynb").read_text()


def test_a_translated_edition_has_copies_of_its_own(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(language, "LOCALE", folder / "locale")
    (folder / "locale").mkdir()
    (folder / "locale/ko.po").write_text("")
    (folder / "ko").mkdir()
    (folder / "ko/02_b.ipynb").write_text((folder / "02_b.ipynb").read_text())
    (folder / "ko/TEXT.md").write_text("글")
    work = tmp_path / "work"
    working.prepare(work, folder)
    assert not (work / "ko").exists() and not (work / "locale").exists()
    working.prepare(work / "ko", folder / "ko")
    change(work / "ko/02_b.ipynb", '"stub"', '"my answer"')
    assert "stub" in (folder / "ko/02_b.ipynb").read_text()
    assert (work / "ko/TEXT.md").read_text() == "글"


def test_a_damaged_copy_is_not_written_over(folder, tmp_path):
    copy = tmp_path / "work/02_b.ipynb"
    working.prepare(tmp_path / "work", folder)
    copy.write_text("{")
    with pytest.raises(CourseError, match="answers can't be read"):
        working.prepare(tmp_path / "work", folder)
    assert copy.read_text() == "{"


@pytest.mark.parametrize(
    ("user", "typed", "opened", "edition"),
    [(1000, "", True, ""), (0, "y", True, "ko"), (0, "n", False, "")],
)
def test_lab_opens_the_first_notebook_and_asks_root_first(
    monkeypatch, user, typed, opened, edition
):
    called = []
    monkeypatch.setattr(working, "prepare", lambda *_: [])
    monkeypatch.setattr(course.os, "geteuid", lambda: user)
    monkeypatch.setattr(course.os, "execv", lambda program, words: called.append(words))
    words = ["--language", edition] if edition else []
    said = CliRunner().invoke(app, ["lab", *words], input=typed)
    assert bool(called) == opened, said.output
    if opened:
        assert ("--allow-root" in called[0]) == (user == 0)
        first = f"/lab/tree/{edition}/00_start_here.ipynb".replace("//", "/")
        assert any(word.endswith(f"={first}") for word in called[0])
        (settings,) = (w.partition("=")[2] for w in called[0] if "app_settings_dir" in w)
        json.loads((course.pathlib.Path(settings) / "overrides.json").read_text())
