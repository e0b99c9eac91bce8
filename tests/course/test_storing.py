"""Stored outputs carry no traces of a run, and a second store changes nothing."""

import sys

import nbformat
import pytest
from conventions import METADATA
from made_notebooks import quiet, write
from terminal import call, without

from helpers.course import storing as course

pytestmark = pytest.mark.slow


def test_store_writes_outputs_without_traces_and_twice_the_same(tmp_path):
    native = "import os\nprint('a', flush=True)\nprint('b')\nos.system('echo native')"
    path = write(tmp_path, "02_b", native, "{'x': 1}", parameters="steps = 3")
    node = nbformat.read(path, 4)
    node.cells[1].metadata |= {"scrolled": True, "vscode": {"languageId": "python"}}
    node.cells[2].metadata |= {"slideshow": {"slide_type": "slide"}, "tags": []}
    node.cells[3].metadata |= {"jupyter": {"source_hidden": True}}  # folded by a reader
    node.cells[4].metadata["tags"] = ["hide-input"]
    node.metadata["widgets"] = {"application/vnd.jupyter.widget-state+json": {"state": {}}}
    nbformat.write(node, path)
    assert course.store(folder=tmp_path, console=quiet()).status == 0
    first = path.read_bytes()
    stored = nbformat.read(path, 4)
    nbformat.validate(stored)
    assert stored.metadata == METADATA
    assert [(x.id, x.source) for x in stored.cells] == [(x.id, x.source) for x in node.cells]
    folded = {"tags": ["hide-input"], **course.FOLDED}
    metadata = [
        {},
        {"tags": ["parameters"]},
        {"slideshow": {"slide_type": "slide"}},
        {},
        folded,
        {},
    ]
    assert [dict(cell.metadata) for cell in stored.cells] == metadata
    code = [cell for cell in stored.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == [1, 2, 3]
    assert [output.get("text") for output in code[1].outputs] == ["a\nb\n", None]
    assert first.decode() == nbformat.writes(stored) + "\n"
    assert course.store(folder=tmp_path, console=quiet()).status == 0
    assert path.read_bytes() == first
    # What is stored is what nbval sees, native output included.
    command = [sys.executable, "-m", "pytest", "-q", "--nbval", "--nbval-current-env", str(path)]
    compared = call(*command, cwd=tmp_path, env=without("PYTEST"))
    assert "3 passed" in compared.stdout, compared.stdout


def test_store_leaves_a_notebook_that_fails_as_it_is(tmp_path):
    bad, good = write(tmp_path, "02_b", "print(1)", "1/0"), write(tmp_path, "03_c", "print(1)")
    before, untouched = bad.read_bytes(), good.read_bytes()
    report = course.store(folder=tmp_path, console=quiet())
    assert [result.state for result in report.results] == ["failed", "passed"]
    assert report.status == 1
    assert bad.read_bytes() == before
    assert good.read_bytes() != untouched
