"""Small notebooks for tests of the course's machinery, without TensorFlow."""

import io
import tomllib

import nbformat
from conventions import METADATA, ROOT
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from rich.console import Console

DATA = tomllib.loads((ROOT / "tests/course/made_notebooks.toml").read_text("utf-8"))


def write(folder, name, *sources, parameters=None, title=None):
    """Write a notebook: its opening, its parameters, then sections of one code cell each."""
    cells = [new_markdown_cell(DATA["opening"].format(title=title or f"Is {name} a question?"))]
    if parameters is not None:
        cells.append(new_code_cell(parameters, metadata={"tags": ["parameters"]}))
    for at, source in enumerate(sources, 1):
        cells += [new_markdown_cell(f"## Part {at}"), new_code_cell(source)]
    for at, cell in enumerate(cells):
        cell.id = f"cell-{at}"
    node = new_notebook(cells=cells, metadata={"kernelspec": METADATA["kernelspec"]})
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.ipynb"
    nbformat.write(node, path)
    return path


def quiet():
    """A console that no one sees."""
    return Console(file=io.StringIO(), width=100)
