"""Storing outputs in the notebooks themselves, without what differs from run to run."""

import pathlib
from collections.abc import Sequence

import nbformat
from rich.console import Console

from helpers.base import files
from helpers.course.kernels import Result
from helpers.course.map import NOTEBOOKS, Notebook, choose, notebooks
from helpers.course.running import Report, run_all

_KEPT = ("tags", "slideshow")  # what a cell's metadata says to the course

# How a cell tagged ``hide-input`` is folded: in JupyterLab, and as a form in Colab.
FOLDED = {"jupyter": {"source_hidden": True}, "cellView": "form"}


def store(
    wanted: Sequence[str] = (), folder: pathlib.Path = NOTEBOOKS, console: Console | None = None
) -> Report:
    """Run notebooks with their defaults and write the outputs into the notebooks themselves.

    One after another, because a neighbour would change the times that some outputs tell. A notebook
    that fails stays as it is. No times, no traces of the tools and no state of widgets are written,
    so a second store of the same outputs changes nothing. Arguments as for `running.run`.

    Raises:
        CourseError: The input can't be used, a kernel does not start, or a notebook can't be
            written.
    """

    def keep(notebook: Notebook, result: Result, node: nbformat.NotebookNode) -> None:
        if result.state == "passed":
            files.write(notebook.path, nbformat.writes(_stripped(node)).rstrip("\n") + "\n")

    return Report(run_all(choose(wanted, notebooks(folder)), {}, keep, console))


def _stripped(node: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Copy a notebook without what differs from run to run or belongs to a tool."""
    node = nbformat.from_dict(node)
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    node.metadata = nbformat.from_dict({"kernelspec": kernel, "language_info": {"name": "python"}})
    for cell in node.cells:
        # The rest is of tools: papermill's times, what JupyterLab folded, VS Code's language.
        kept = {key: cell.metadata[key] for key in _KEPT if cell.metadata.get(key)}
        if "hide-input" in kept.get("tags", ()):
            kept |= FOLDED
        cell.metadata = nbformat.from_dict(kept)
    return node
