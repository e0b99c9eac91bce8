"""What a notebook keeps of its metadata: nothing of a machine, a run or an editor.

Reads and writes files only: no notebook runs, and neither Jupyter nor TensorFlow is imported.
"""

import json
import pathlib
from collections.abc import Sequence

from course.catalog import Notebook
from helpers.base import files
from helpers.base.errors import unreadable

METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
OWN_METADATA = ("tags", "slideshow")  # what authors write of a cell's
# How a cell tagged ``hide-input`` is folded: in JupyterLab, and as a form in Colab.
FOLDED = {"jupyter": {"source_hidden": True}, "cellView": "form"}


def strip_metadata(notebook: dict) -> None:
    """Leave out, in place, what differs from run to run or belongs to a tool."""
    notebook["metadata"] = METADATA
    for cell in notebook["cells"]:
        metadata = cell["metadata"]
        own = {key: metadata[key] for key in OWN_METADATA if metadata.get(key)}
        if "hide-input" in own.get("tags", ()):
            own |= FOLDED
        cell["metadata"] = own


def tidied(text: str) -> str:
    """Give a notebook, JSON, without what JupyterLab adds when someone edits it.

    Those are metadata, execution counts with gaps, empty cells at the end, and empty lines at the
    end of a cell. A cell that never ran keeps no count: its output has to be stored.
    """
    notebook = json.loads(text)
    strip_metadata(notebook)
    for cell in notebook["cells"]:
        source = "".join(cell["source"]).rstrip()
        cell["source"] = source.splitlines(keepends=True)
    while len(notebook["cells"]) > 1 and not notebook["cells"][-1]["source"]:
        notebook["cells"].pop()
    _renumber(notebook)
    return json.dumps(notebook, ensure_ascii=False, indent=1, sort_keys=True) + "\n"


def _renumber(notebook: dict) -> None:
    """Count the cells that ran from 1, from top to bottom."""
    count = 0
    for cell in notebook["cells"]:
        if cell["cell_type"] != "code" or cell["execution_count"] is None:
            continue
        count += 1
        cell["execution_count"] = count
        for output in cell["outputs"]:
            if "execution_count" in output:
                output["execution_count"] = count


def tidy(notebooks: Sequence[Notebook]) -> list[pathlib.Path]:
    """Tidy notebooks; give the files that changed.

    Raises `CourseError`: A notebook is damaged, or can't be written.
    """
    paths = []
    for notebook in notebooks:
        text = notebook.path.read_text("utf-8")
        with unreadable(f"{notebook.path.name} can't be used.", "Repair it."):
            result = tidied(text)
        if result != text:
            files.write(notebook.path, result)
            paths.append(notebook.path)
    return paths
