"""The setup cell runs the code of this course, and of no other user's folder."""

import os
import re
import sys

import nbformat
import pytest
from conventions import NOTEBOOKS, source, tagged
from terminal import call

OTHER_USER = 65534  # nobody's

needs_root = pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0,
    reason="only root can give a folder to another user",
)


def make_project(folder, name):
    """Make a folder that says its name when its `helpers` run."""
    (folder / "helpers").mkdir(parents=True)
    runtime = f"def setup():\n    print('the code of {name}')\n"
    (folder / "helpers/runtime.py").write_text(runtime)


@pytest.fixture
def course(tmp_path):
    folder = tmp_path / "course"
    make_project(folder, "the course")
    (folder / "tpu_preflight/src").mkdir(parents=True)
    (folder / "mine").mkdir()
    return folder


def run_setup(folder):
    """Run the setup cell with a notebook's folder as the current one, and without a network."""
    notebook = nbformat.read(NOTEBOOKS[0], 4)
    cell = source(notebook.cells[tagged(notebook, "setup")[0]])
    program = re.sub(r"^( +)!.*", r"\1pass", cell, flags=re.MULTILINE)
    # Isolated: without the folders of this test in its path, where `helpers` is.
    return call(sys.executable, "-I", "-S", "-c", program, cwd=folder)


def assert_refused(process, folder):
    assert process.returncode == 1
    assert process.stdout == ""
    message = process.stderr.splitlines()[-1]
    assert message.startswith(f"PermissionError: {folder} is another user's")


def test_the_course_above_the_notebook_runs(course):
    process = run_setup(course / "mine")
    assert (process.stdout, process.stderr) == ("the code of the course\n", "")


def test_another_project_with_helpers_is_passed_over(course):
    project = course / "mine"
    make_project(project, "the project")
    (project / "notes").mkdir()
    process = run_setup(project / "notes")
    assert (process.stdout, process.stderr) == ("the code of the course\n", "")


@needs_root
@pytest.mark.parametrize("name", ["", "helpers", "tpu_preflight"])
def test_another_users_folder_above_is_refused(course, name):
    os.chown(course / name, OTHER_USER, OTHER_USER)
    assert_refused(run_setup(course / "mine"), course / name)


@needs_root
def test_another_users_link_to_a_folder_of_ones_own_is_refused(course, tmp_path):
    # As below /tmp, which is root's: only the links in it are another user's.
    shared = tmp_path / "shared"
    (shared / "mine").mkdir(parents=True)
    for name in ("helpers", "tpu_preflight"):
        (shared / name).symlink_to(course / name)
        os.chown(shared / name, OTHER_USER, OTHER_USER, follow_symlinks=False)
    assert_refused(run_setup(shared / "mine"), shared / "helpers")


@needs_root
def test_another_users_clone_beside_the_notebook_is_refused(course, tmp_path):
    clone = tmp_path / "tensorflow-on-tpu"
    course.rename(clone)
    os.chown(clone, OTHER_USER, OTHER_USER)
    assert_refused(run_setup(tmp_path), clone)
