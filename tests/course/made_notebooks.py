"""Small notebooks for tests of the course's machinery, without TensorFlow."""

import io

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from rich.console import Console

from course.tidy import METADATA


def write(folder, name, *sources, parameters=None, tags=()):
    """Write a notebook: its title, its parameters, then a cell for each source, the last tagged."""
    cells = [new_markdown_cell(f"# Is `{name}` a question?")]
    if parameters is not None:
        cells.append(new_code_cell(parameters, metadata={"tags": ["parameters"]}))
    cells += [new_code_cell(source) for source in sources]
    cells[-1].metadata["tags"] = [*cells[-1].metadata.get("tags", ()), *tags]
    for number, cell in enumerate(cells):
        cell.id = f"cell-{number}"
    node = new_notebook(cells=cells, metadata={"kernelspec": METADATA["kernelspec"]})
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.ipynb"
    nbformat.write(node, path)
    return path


def quiet():
    """A console whose output can be read."""
    return Console(file=io.StringIO(), width=200)
