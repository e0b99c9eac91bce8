"""The notebooks find the course wherever they are opened: JupyterLab, VS Code, nbconvert, Colab."""

import json
import pathlib
import sys

import pytest
from conventions import NOTEBOOKS, repository, source, tagged
from terminal import call, commit, git, without

FIRST = json.loads(NOTEBOOKS[0].read_text("utf-8"))
SETUP = source(FIRST["cells"][tagged(FIRST, "setup")[0]])
RUNTIME = "def setup():\n    print('ready in', __file__)\n"


def write_course(folder: pathlib.Path) -> pathlib.Path:
    """A course as far as the setup cell sees it."""
    for name in ("helpers", "notebooks"):
        (folder / name).mkdir(parents=True)
    (folder / "helpers/runtime.py").write_text(RUNTIME)
    (folder / "notebooks/a.txt").touch()
    return folder


def run_setup(folder: pathlib.Path, home: pathlib.Path) -> str:
    environment = without("GIT_", "PYTHONPATH") | {"HOME": str(home), "GIT_CONFIG_NOSYSTEM": "1"}
    done = call(sys.executable, "-c", SETUP, cwd=folder, env=environment)
    return done.stdout + done.stderr


@pytest.mark.parametrize("where", [".", "notebooks", "notebooks/deeper"])
def test_a_kernel_may_start_in_any_folder_of_the_course(tmp_path, where):
    """JupyterLab, VS Code and nbconvert start it in the notebook's folder, others in the root."""
    course = write_course(tmp_path / "course")
    (course / where).mkdir(exist_ok=True)
    assert run_setup(course / where, tmp_path) == f"ready in {course}/helpers/runtime.py\n"


def test_in_an_empty_folder_the_course_is_fetched_once(tmp_path):
    """Git is told that the public address is a folder, so the cell runs as it is."""
    public, content = write_course(tmp_path / "public"), tmp_path / "content"
    content.mkdir()
    git(public, "init", "-q")
    commit(public)
    instead = f'[url "{public.as_uri()}"]\n  insteadOf = {repository()}\n'
    (tmp_path / ".gitconfig").write_text(f"{instead}[safe]\n  directory = *\n")
    fetched = content / repository().rpartition("/")[2]
    said = run_setup(content, tmp_path)
    assert f"ready in {fetched}/helpers/runtime.py\n" in said
    assert "Cloning into" in said
    # After the restart: nothing is fetched again.
    assert run_setup(content, tmp_path) == f"ready in {fetched}/helpers/runtime.py\n"


def test_an_address_out_of_reach_is_no_silent_failure(tmp_path):
    (tmp_path / ".gitconfig").write_text(f'[url "file:///nowhere"]\n  insteadOf = {repository()}\n')
    content = tmp_path / "content"
    content.mkdir()
    said = run_setup(content, tmp_path)
    assert "CalledProcessError" in said and "does not appear to be a git repository" in said
