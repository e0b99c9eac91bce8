"""A notebook that was edited in JupyterLab is stored as before, without running it."""

import json

import pytest
from conventions import NOTEBOOKS
from recipes import as_jupyterlab_saves_it
from typer.testing import CliRunner

from course import catalog, tidy
from course.commands.app import app


@pytest.mark.parametrize("path", NOTEBOOKS[:2], ids=lambda path: path.stem)
def test_what_jupyterlab_adds_is_taken_out(path):
    text = path.read_text("utf-8")
    notebook = json.loads(as_jupyterlab_saves_it(text))
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for cell in code[:-1]:  # the last is the empty cell
        cell["execution_count"] += 17
        cell["metadata"]["execution"] = {"iopub.status.busy": "2026-11-27T00:00:00Z"}
        cell["source"] = ["".join(cell["source"]) + "\n\n"]
    assert tidy.tidied(json.dumps(notebook)) == text


def test_a_cell_that_never_ran_gets_no_count():
    cells = []
    for count in (3, None, 9):
        cell = {"cell_type": "code", "metadata": {}, "source": ["1"], "execution_count": count}
        cells.append(cell | {"outputs": []})
    notebook = json.loads(tidy.tidied(json.dumps({"metadata": {}, "cells": cells})))
    assert [cell["execution_count"] for cell in notebook["cells"]] == [1, None, 2]


def test_the_command_says_what_it_changed(tmp_path, monkeypatch):
    for path in NOTEBOOKS[:2]:
        (tmp_path / path.name).write_bytes(path.read_bytes())
    edited = tmp_path / NOTEBOOKS[1].name
    edited.write_text(as_jupyterlab_saves_it(edited.read_text("utf-8")), "utf-8")
    monkeypatch.setattr(catalog, "NOTEBOOKS", tmp_path)
    notebooks = catalog.notebooks(tmp_path)
    monkeypatch.setattr(catalog, "notebooks", lambda folder: notebooks)
    result = CliRunner().invoke(app, ["tidy"])
    assert result.stdout == f"{edited.name} is tidied\n1 of 2 notebooks changed\n"
    assert edited.read_bytes() == NOTEBOOKS[1].read_bytes()
