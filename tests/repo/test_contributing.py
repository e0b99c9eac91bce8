"""The ten lines of CONTRIBUTING.md lead to a notebook that the course accepts."""

import filecmp
import os
import pathlib
import re
import shutil
import subprocess
import sys

import nbformat
import pytest
from conventions import ROOT, badges, source, tagged
from nbformat.v4 import new_code_cell, new_markdown_cell
from terminal import call, without

pytestmark = pytest.mark.slow

LINES = re.findall(r"^\d+\. (.+)$", (ROOT / "CONTRIBUTING.md").read_text("utf-8"), re.MULTILINE)
NAME = "50_my_question"

FILES = ROOT / "tests/repo/new_notebook"


def commands(line: str) -> list[list[str]]:
    """The commands at the beginning of a line of CONTRIBUTING.md."""
    return [each.split() for each in re.match(r"`([^`]+)`", line)[1].split(" && ")]


def write_notebook(path: pathlib.Path) -> None:
    """Lines 2, 3, 4 and 6."""
    node = nbformat.read(path, 4)
    (setup,) = tagged(node, "setup")
    opening = (FILES / "opening.md").read_text("utf-8").format(**badges(path.name))
    parameters, exercise = {"tags": ["parameters"]}, {"tags": ["exercise"]}
    node.cells = [
        new_markdown_cell(opening),
        node.cells[setup],
        new_code_cell("TWO = 2", metadata=parameters),
        new_code_cell("from helpers.exercises import check\n\nTWO + TWO"),
    ]
    for at, kind in enumerate(("Recall", "Change", "Build"), 1):
        stub = f'def answer():\n    raise NotImplementedError("50-{at}")'
        node.cells += [
            new_markdown_cell(f"**50-{at} · {kind}.** What is two and two?"),
            new_code_cell(stub, metadata=exercise),
            new_code_cell(f'check("50-{at}", answer)'),
        ]
    node.cells.append(new_markdown_cell("## Recap\n\n- [ ] I can add."))
    for cell in node.cells:
        cell.metadata["slideshow"] = {"slide_type": "slide" if cell.source[:1] == "#" else "-"}
    nbformat.write(node, path)


def insert(path: pathlib.Path, before: str, text: str) -> None:
    old = path.read_text("utf-8")
    assert old.count(before) == 1, before
    path.write_text(old.replace(before, text + before), "utf-8")


@pytest.fixture(scope="module")
def followed(tmp_path_factory):
    """A copy of the course after the ten lines, and what the last one said."""
    left = shutil.ignore_patterns(".git", ".venv", "build", "__pycache__", ".*_cache", "browser")
    course = shutil.copytree(ROOT, tmp_path_factory.mktemp("new") / "course", ignore=left)
    python = pathlib.Path(sys.executable).parent
    environment = without("PYTEST_")
    environment["PATH"] = f"{python}{os.pathsep}{environment['PATH']}"

    def run(command: list[str]) -> subprocess.CompletedProcess:
        return call(*command, cwd=course, env=environment)

    (copied,), follow, (checked,) = map(commands, (LINES[0], LINES[8], LINES[9]))
    assert run(copied).returncode == 0
    notebook = course / "notebooks" / f"{NAME}.ipynb"
    write_notebook(notebook)
    for file in FILES.glob("notebook_50.*"):
        shutil.copy(file, course / "helpers/exercises")
    insert(course / "tests/notebooks/changed.toml", "[08_preflight]", f"[{NAME}]\nTWO = 3\n\n")
    readme = (course / "README.md").read_text("utf-8")
    row = re.search(r"^\| \[08\].*\n", readme, re.MULTILINE)[0]
    row = row.replace("08_preflight", NAME).replace("[08]", "[50]")
    insert(course / "README.md", "\nEach notebook opens with", row)
    insert(course / "helpers/course/seconds.toml", "08 = ", "50 = 5\n")
    for command in follow:
        done = run(command)
        assert done.returncode == 0, done.stdout + done.stderr
    return course, run(checked)


def test_there_are_ten_lines_and_they_name_what_is_touched(followed):
    course, _ = followed
    assert len(LINES) == 10
    named = {word for line in LINES for word in re.findall(r"`((?:\w+/)*\w+\.\w+)`", line)}
    assert named == {
        "helpers/exercises/notebook_50.py",
        "helpers/exercises/notebook_50.toml",
        "helpers/course/seconds.toml",
        "tests/notebooks/changed.toml",
        "README.md",
    }
    files = {str(p.relative_to(course)) for p in course.rglob("*") if p.is_file()}
    same, _, _ = filecmp.cmpfiles(ROOT, course, files, shallow=False)
    # Another notebook's Korean edition is written anew where it is behind its English one.
    made = re.compile(r"(^|/)(\.hypothesis|__pycache__|\.pytest_cache)/|^notebooks/ko/(?!50_)")
    changed = {file for file in files - {*same} if not made.search(file)}
    edition = {f"notebooks/ko/{NAME}.ipynb", "notebooks/locale/ko.po", "README.ko.md"}
    assert changed == named | {f"notebooks/{NAME}.ipynb"} | edition


def test_the_new_notebook_passes_every_check_and_its_output_is_stored(followed):
    course, checked = followed
    assert checked.returncode == 0, checked.stdout
    passed = int(re.search(r"(\d+) passed", checked.stdout)[1])
    # Conventions, setup cell, README; the exercises; its minutes; a run with changed parameters.
    assert passed >= 2 + 3 * 4 + 3 + 1 + 3
    node = nbformat.read(course / "notebooks" / f"{NAME}.ipynb", 4)
    (cell,) = [cell for cell in node.cells if source(cell).endswith("TWO + TWO")]
    assert cell.outputs[0]["data"]["text/plain"] == "4"
