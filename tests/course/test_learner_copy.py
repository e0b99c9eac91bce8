"""The learner's copies: made once, renewed with the course, and no answer is lost."""

import json

import nbformat
import pytest
from made_notebooks import write
from nbformat.v4 import new_code_cell, new_output
from typer.testing import CliRunner

from course import learner_copy
from course.commands import notebooks
from course.commands.app import app
from helpers.base import language
from helpers.base.errors import CourseError


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
    (path.parent / "data/.#x.txt").symlink_to("an editor's lock")
    return path.parent


def change(path, words, replacement):
    path.write_text(path.read_text("utf-8").replace(words, replacement), "utf-8")


def test_answers_survive_an_update_and_the_copy_as_it_was_is_kept(folder, tmp_path):
    work = tmp_path / "work"
    copy = work / "02_b.ipynb"
    assert learner_copy.prepare(work, folder) == []
    change(copy, '"stub"', '"my answer"')
    change(copy, "print(1)", "print(1) # mine")
    edited = copy.read_text("utf-8")
    assert learner_copy.prepare(work, folder) == []  # nothing new
    assert copy.read_text("utf-8") == edited
    change(folder / "02_b.ipynb", "print(1)", "print(2)")
    assert learner_copy.prepare(work, folder) == [copy]
    sources = [cell.source for cell in nbformat.read(copy, 4).cells]
    assert sources[-3:] == ["print(2)", "my answer", "answer = None"]
    assert [p.read_text("utf-8") for p in work.glob("earlier/*/02_b.ipynb")] == [edited]


def test_what_a_notebook_shows_is_copied_and_answers_and_editions_are_not(
    folder, tmp_path, monkeypatch
):
    node = nbformat.read(folder / "02_b.ipynb", 4)
    node.cells[1].outputs = [new_output("stream", text="the answer")]
    nbformat.write(node, folder / "02_b.ipynb")
    monkeypatch.setattr(language, "LOCALE", folder / "locale")
    for name in ("locale/ko.po", "ko/02_b.ipynb", ".ipynb_checkpoints/02_b.ipynb"):
        (folder / name).parent.mkdir()
        (folder / name).write_text("")
    work = tmp_path / "work"
    for text in ("text", "new text"):
        (folder / "TEXT.md").write_text(text)
        learner_copy.prepare(work, folder)
        assert (work / "TEXT.md").read_text() == text
        (work / "TEXT.md").write_text("notes")
    assert [p.read_text() for p in work.glob("earlier/2*/*/TEXT.md")] == ["notes"]
    assert {path.name for path in work.iterdir()} == {"02_b.ipynb", "TEXT.md", "data", "earlier"}
    assert (work / "data/x.txt").read_text() == "x"
    assert "the answer" not in (work / "02_b.ipynb").read_text()


def test_a_damaged_copy_is_not_written_over(folder, tmp_path):
    copy = tmp_path / "work/02_b.ipynb"
    learner_copy.prepare(tmp_path / "work", folder)
    copy.write_text("{")
    write(folder, "01_a", "1")
    with pytest.raises(CourseError, match="answers can't be read"):
        learner_copy.prepare(tmp_path / "work", folder)
    assert copy.read_text() == "{"
    assert not copy.with_name("01_a.ipynb").exists()
    change(folder / "02_b.ipynb", '"id": "exercise-1",', "")
    with pytest.raises(CourseError, match=r"02_b.ipynb has an exercise's cell without an id"):
        learner_copy.prepare(tmp_path / "work", folder)


@pytest.mark.parametrize("port", [[], ["--port", "8890"]])
def test_lab_asks_jupyter_for_the_port(monkeypatch, port):
    command = []
    monkeypatch.setattr(learner_copy, "prepare", lambda *_: [])
    monkeypatch.setattr(notebooks.os, "execv", lambda program, words: command.extend(words))
    assert CliRunner().invoke(app, ["lab", *port]).exit_code == 0
    assert ("--port=8890" in command) == bool(port)


@pytest.mark.parametrize("value", ["0", "65536", "eighty"])
def test_lab_refuses_what_is_no_port(value):
    assert CliRunner().invoke(app, ["lab", "--port", value]).exit_code == 2


@pytest.mark.parametrize("edition", ["", "ko"])
def test_lab_opens_the_first_notebook(monkeypatch, edition):
    command = []
    monkeypatch.setattr(learner_copy, "prepare", lambda *_: [])
    monkeypatch.setattr(notebooks.os, "execv", lambda program, words: command.extend(words))
    words = ["--language", edition] if edition else []
    assert CliRunner().invoke(app, ["lab", *words]).exit_code == 0
    page = f"/lab/tree/{edition}/00_start_here.ipynb".replace("//", "/")
    assert any(word.endswith(f"={page}") for word in command)
    (folder,) = [word.partition("=")[2] for word in command if "app_settings_dir" in word]
    settings = json.loads((notebooks.pathlib.Path(folder) / "overrides.json").read_text())
    viewers = settings["@jupyterlab/docmanager-extension:plugin"]["defaultViewers"]
    assert viewers["markdown"] == "Markdown Preview"  # a text opens as a page
