"""The notebooks find the course wherever they are opened: JupyterLab, VS Code, nbconvert, Colab."""

import json
import os
import pathlib
import subprocess
import sys

import pytest
from conventions import NOTEBOOKS, ROOT, repository, source, tagged

FIRST = json.loads(NOTEBOOKS[0].read_text("utf-8"))
SETUP = source(FIRST["cells"][tagged(FIRST, "setup")[0]])
RUNTIME = "def setup():\n    print('ready in', __file__)\n"


def write_course(folder: pathlib.Path) -> pathlib.Path:
    """A course as far as the setup cell sees it."""
    for name, text in (
        ("helpers/__init__.py", ""),
        ("helpers/runtime.py", RUNTIME),
        ("notebooks/a.txt", ""),
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def run_setup(folder: pathlib.Path, home: pathlib.Path) -> str:
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("GIT_", "PYTHONPATH"))}
    done = subprocess.run(
        [sys.executable, "-c", SETUP],
        cwd=folder,
        env=environment | {"HOME": str(home), "GIT_CONFIG_NOSYSTEM": "1"},
        capture_output=True,
        text=True,
    )
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
    who = ["-c", "user.name=Test", "-c", "user.email=test@example.invalid"]
    for words in (["init", "-q"], ["add", "."], [*who, "commit", "-q", "-m", "All"]):
        subprocess.run(["git", *words], cwd=public, check=True)
    (tmp_path / ".gitconfig").write_text(
        f'[url "{public.as_uri()}"]\n  insteadOf = {repository()}\n[safe]\n  directory = *\n'
    )
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
    assert "CalledProcessError" in said
    assert "does not appear to be a git repository" in said


def test_nbconvert_runs_a_notebook_in_its_folder(tmp_path):
    """The beginning of one: `make run` runs them whole, with the same client."""
    course = tmp_path / "course"
    (course / "notebooks").mkdir(parents=True)
    for name in ("helpers", "requirements.txt"):
        (course / name).symlink_to(ROOT / name)
    cells = FIRST["cells"][: tagged(FIRST, "parameters")[0] + 1]
    notebook = course / "notebooks" / NOTEBOOKS[0].name
    notebook.write_text(json.dumps(FIRST | {"cells": cells}), "utf-8")
    command = [sys.executable, "-m", "nbconvert", "--to", "notebook", "--execute", "--stdout"]
    done = subprocess.run([*command, notebook], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    code = [cell for cell in json.loads(done.stdout)["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == [1, 2]
    assert "".join(code[0]["outputs"][0]["text"]).startswith("Ready: TensorFlow")
