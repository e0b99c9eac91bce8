"""What is done is kept, on this machine alone, and nothing in its way stops a lesson."""

import datetime
import io
import multiprocessing

import nbformat
import pytest
from bs4 import BeautifulSoup
from conventions import ROOT
from IPython.core.interactiveshell import InteractiveShell
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from rich.console import Console
from typer.testing import CliRunner

from helpers import exercises
from helpers.course.commands.app import app
from helpers.exercises import progress

pytestmark = pytest.mark.slow

TODAY = datetime.date.today().isoformat()


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """A learner's machine, although a test runs here."""
    monkeypatch.setattr(progress, "UNATTENDED", ())
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setattr(progress, "_silent", False)
    return tmp_path


def code(source, *tags):
    return new_code_cell(source, metadata={"tags": [*tags]})


@pytest.fixture
def course(home, monkeypatch):
    """Two notebooks that share their setup cell, as the course's do."""
    text = new_markdown_cell
    first = [text("# What is `two` and two?\n\ntext"), code("import os", "setup")]
    first += [code("A = 2", "parameters"), code("import sys")]
    first += [text("## Adding"), code("2 + 2")]
    first += [text("### A detail\n\n```sh\n## not a heading\n```"), code("4 + 4")]
    first += [text("## Only words"), code("check('01-a', answer)", "question")]
    first += [text("## Sitting 2 of 2: More", metadata={"tags": ["sitting"]})]
    first += [text("## `Dividing`\n\ntext"), code("1 / one")]
    first += [text("## Exercises"), code('hint("01-1")'), code("def f(): ...", "exercise")]
    first += [code('check("01-1", f)'), text("## Recap")]
    second = [code("import os", "setup"), text("## Adding"), code("2 + 2"), code("5 - 5")]
    (home / "notebooks").mkdir()
    for name, cells in (("01_first", first), ("02_second", second)):
        nbformat.write(new_notebook(cells=cells), home / f"notebooks/{name}.ipynb")
    todo = progress.lessons(home / "notebooks")
    monkeypatch.setattr(progress, "_todo", lambda: todo)
    return home / "notebooks"


@pytest.fixture
def shell():
    """A real shell; its hook is registered twice, as when the setup cell is run twice."""
    made = InteractiveShell(user_ns={"one": 1})
    progress.follow(made)
    progress.follow(made)
    return made


def done(course):
    return set(progress.progress(course).days)


def test_sections_and_exercises_are_read_from_the_notebooks(course):
    first, second = progress.lessons(course)
    assert (first.number, first.title, first.exercises) == ("01", "What is two and two?", ("01-1",))
    lengths = {name: len(cells) for name, cells in first.sections.items()}
    assert lengths == {"01 Adding": 2, "01 Dividing": 1}
    assert list(second.sections) == ["02 Adding"]
    assert (first.sittings, second.sittings) == (2, 1)
    assert first.sitting == {"01 Adding": 1, "01 Dividing": 2, "01-1": 2}
    for lesson in progress.lessons():  # of the course itself
        assert min(len(lesson.sections), len(lesson.exercises)) >= 3, lesson
        assert lesson.title.endswith("?")


def test_a_section_is_done_when_all_its_cells_ran_in_one_session_or_several(course, shell):
    shell.run_cell("2 + 2\n")
    assert done(course) == set()
    another = InteractiveShell()
    progress.follow(another)
    another.run_cell("4 + 4")
    assert done(course) == {"01 Adding"}
    shell.run_cell("1 / one")
    shell.run_cell("5 - 5")
    assert done(course) == {"01 Adding", "01 Dividing", "02 Adding"}
    assert progress.progress(course).days["01 Adding"] == TODAY


def test_it_says_where_one_stopped_and_what_comes_next(course, shell):
    assert progress.progress(course).stopped == ""
    shell.run_cell("2 + 2\n")
    found = progress.progress(course)
    assert found.stopped == "01, sitting 1 of 2: Adding"
    assert found.following(found.lessons[0]) == "sitting 1 of 2: Adding"
    shell.run_cell("4 + 4")
    progress.exercise_done("01-1")
    found = progress.progress(course)
    assert found.stopped == "01, sitting 2 of 2: exercise 01-1"
    assert [found.following(x) for x in found.lessons] == ["sitting 2 of 2: Dividing", "Adding"]
    assert "Next: sitting 2 of 2: Dividing" in words(progress.page(found))
    shell.run_cell("1 / one")
    found = progress.progress(course)
    assert found.following(found.lessons[0]) == ""


def test_a_cell_that_fails_or_is_not_of_the_course_is_not_kept(course, shell, capsys):
    shell.run_cell("1 / zero")
    shell.run_cell("password = 'secret'")
    shell.run_cell("import os")  # setup
    shell.run_cell("A = 2")
    assert not progress.where().exists()
    assert "can't be kept" not in capsys.readouterr().err
    # A cell of the course counts when it no longer fails.
    del shell.user_ns["one"]
    shell.run_cell("1 / one")
    assert done(course) == set()
    shell.user_ns["one"] = 1
    shell.run_cell("1 / one")
    assert done(course) == {"01 Dividing"}


def test_a_thing_is_written_once(course, shell):
    for _ in range(3):
        shell.run_cell("2 + 2")
        shell.run_cell("4 + 4")
        progress.exercise_done("01-1")
    lines = progress.where().read_text("utf-8").splitlines()
    kinds = [line.split(" ")[1] for line in lines if line]
    assert sorted(kinds) == ["cell", "cell", "exercise", "section"]


def test_a_section_stays_done_when_its_cells_or_its_heading_change(course, shell):
    shell.run_cell("1 / one")
    path = course / "01_first.ipynb"
    kept = path.read_text()
    path.write_text(kept.replace('"1 / one"', '"1 / 3"'))  # a learner tries something and saves
    assert done(course) == {"01 Dividing"}
    path.write_text(kept.replace("## `Dividing`", "## Sharing"))  # a new edition
    assert done(course) == {"01 Sharing"}


def test_a_right_answer_is_kept_and_no_other(monkeypatch):
    def judge(value):
        if value() != 42:
            raise exercises.Wrong("No.")
        return "Yes."

    made = exercises.Exercise("", "f", judge, (), "", ())
    monkeypatch.setattr(exercises, "find", lambda name: made)
    exercises.check("00-1", lambda: 41)
    exercises.check("00-2", None)
    assert not progress.where().exists()
    assert exercises.check("00-3", lambda: 42).state == "right"
    assert set(progress.progress().days) == {"00-3"}


def test_a_run_that_no_learner_does_is_not_kept(course, shell, monkeypatch):
    monkeypatch.setattr(progress, "UNATTENDED", ["SOME_RUNNER"])
    monkeypatch.setenv("SOME_RUNNER", "1")
    shell.run_cell("1 / one")
    progress.exercise_done("01-1")
    assert not progress.where().exists()


def write_many(number):
    for at in range(50):
        progress.exercise_done(f"{number:02}-{at}")
        progress.exercise_done(f"77-{at}")


def test_two_kernels_at_once_lose_nothing(home):
    with multiprocessing.get_context("fork").Pool(3) as workers:
        workers.map(write_many, (1, 2, 3), chunksize=1)
    found, damaged = progress._read()
    assert damaged == 0
    names = {f"{number:02}-{at}" for number in (1, 2, 3, 77) for at in range(50)}
    assert {name for _, name in found} == names


def test_a_damaged_file_is_told_and_what_is_whole_in_it_counts(course, shell):
    shell.run_cell("1 / one")
    with progress.where().open("ab") as file:
        file.write(b"\n\xff\xfe\x00garbage\n{}\n2026-11-21 exer")  # cut off at the end
    progress.exercise_done("01-1")
    found = progress.progress(course)
    assert (set(found.days), found.damaged) == ({"01 Dividing", "01-1"}, 3)
    result = CliRunner().invoke(app, ["progress"])
    assert f"{progress.where()} that can't be read and are left out: 3" in result.stderr
    assert result.exit_code == 0


def test_what_can_t_be_kept_is_said_once_and_the_lesson_goes_on(course, shell, home, capsys):
    (home / "data").write_text("a file where the folder should be")
    shell.run_cell("1 / one")
    shell.run_cell("2 + 2")
    progress.exercise_done("01-1")
    said = capsys.readouterr()
    told = "Your progress can't be kept (Not a directory); the lesson goes on without.\n"
    assert said.err == told
    assert "1.0" in said.out


def test_a_damaged_notebook_does_not_stop_a_lesson_either(home, shell, monkeypatch, capsys):
    (home / "02_bad.ipynb").write_text('{"cells": [')
    monkeypatch.setattr(progress, "_todo", lambda: progress.lessons(home))
    assert shell.run_cell("1 / one").success
    assert "can't be kept (JSONDecodeError" in capsys.readouterr().err


def test_where_it_is_kept(monkeypatch, home):
    assert progress.where() == home / "data/tensorflow-on-tpu/progress.txt"
    monkeypatch.delenv("XDG_DATA_HOME")
    monkeypatch.setenv("HOME", str(home / "ada"))
    assert progress.where() == home / "ada/.local/share/tensorflow-on-tpu/progress.txt"


def test_the_command_shows_what_is_done_and_what_comes_next():
    first = progress.lessons()[0]
    section, following = list(first.sections)[:2]
    for cell in first.sections[section]:
        progress._add("cell", cell)
    progress._add("exercise", "00-1")
    said = CliRunner().invoke(app, ["progress"]).stdout
    words = " ".join(said.split())
    assert f"1 of {len(first.sections)} 1 of {len(first.exercises)}" in words
    assert str(progress.where()) in said.replace("\n", "")
    wide = io.StringIO()
    Console(file=wide, width=200).print(progress.progress())
    assert following[3:] in wide.getvalue()
    said = f"00: 1 of {len(first.sections)} sections, 1 of {len(first.exercises)} exercises\n01: 0"
    assert repr(progress.progress()).startswith(said)


def test_reset_forgets_and_says_what():
    reset = ["progress", "--reset"]
    assert CliRunner().invoke(app, reset).stdout == "There was nothing to forget.\n"
    progress.exercise_done("00-1")
    assert str(progress.where()) in CliRunner().invoke(app, reset).stdout
    assert not progress.where().exists()
    assert progress.progress().days == {}


def words(text):
    return list(BeautifulSoup(text, "html.parser").stripped_strings)


def test_the_page_says_what_is_done_and_fetches_nothing(course, shell):
    shell.run_cell("1 / one")
    text = progress.page(progress.progress(course), "<b>Ada & Co</b>")
    assert not BeautifulSoup(text, "html.parser").select("[src], [href], [action], [data]")
    assert "<b>" not in text and "only words" not in text
    assert text.count('aria-label="done"') == 1
    assert text.count('aria-label="not done"') == 3  # two sections and an exercise
    assert {"<b>Ada & Co</b> is on the way.", "1 of 3", "0 of 1", TODAY} <= {*words(text)}


def test_the_page_of_a_finished_course_says_so(course, shell):
    for cell in ("2 + 2", "4 + 4", "1 / one"):
        shell.run_cell(cell)
    progress.exercise_done("01-1")
    assert not progress.progress(course).complete
    shell.run_cell("5 - 5")
    found = progress.progress(course)
    assert found.complete
    assert "The learner at this machine finished the whole course." in words(progress.page(found))


def test_the_command_writes_the_page_and_its_help_says_so(home, monkeypatch):
    monkeypatch.setattr("helpers.course.map.BUILD", home / "build")
    said = CliRunner().invoke(app, ["progress", "--page", "--name", "Ada"]).stdout
    target = home / "build/progress.html"
    assert said == f"Page: {target}\n"
    assert "Ada is on the way." in target.read_text("utf-8")
    said = " ".join(CliRunner().invoke(app, ["progress", "--help"]).stdout.split())
    assert "tpu-course progress --page" in said and "nothing is sent anywhere" in said


def test_a_real_kernel_with_the_course_s_own_setup_cell_is_followed(monkeypatch):
    cells = nbformat.read(ROOT / "notebooks/00_start_here.ipynb", 4).cells
    at = next(i for i, cell in enumerate(cells) if cell.source.startswith("## Node or VM"))
    codes = [cell for cell in cells if cell.cell_type == "code"]
    answer = exercises.find("00-1")
    typed = (answer.solution, f'check("00-1", {answer.answer})', 'check("00-2", None)')
    section = [cell for cell in cells[at + 1 : at + 3] if cell in codes]
    notebook = new_notebook(cells=[codes[0], codes[2], *section, *map(new_code_cell, typed)])
    for mark in ("PYTEST_CURRENT_TEST", "CI"):
        monkeypatch.delenv(mark, raising=False)
    where = {"metadata": {"path": ROOT / "notebooks"}}
    NotebookClient(notebook, kernel_name="python3", resources=where).execute()
    assert set(progress.progress().days) == {"00 Node or VM", "00-1"}
