"""The learner's own copy of the notebooks, in the folder ``work``, which Git doesn't track.

So an update of the course (``git pull``) meets no changed file, and answers stay: they are carried
into the new edition of a notebook, cell by cell, by the cells' ids.
"""

import hashlib
import json
import pathlib
import time

from course import outputs
from course.catalog import NOTEBOOKS, Notebook, notebooks
from helpers.base import files, language
from helpers.base.errors import unreadable

WORK = language.WORK

_ANSWERS = {"exercise", "question"}  # tags of the cells that a learner fills in


def prepare(work: pathlib.Path = WORK, folder: pathlib.Path = NOTEBOOKS) -> list[pathlib.Path]:
    """Bring the learner's copies up to date; give those that got a new edition.

    A notebook that isn't there is copied, without its outputs: they would answer the questions. One
    whose original has changed since is written again with the learner's answers in it. What they
    show and link to is copied: a server shows no file outside of ``work``. A copy that was changed
    is kept in ``work/earlier``, in a folder of the time.

    Raises `CourseError`: A notebook is damaged, or the folder can't be written.
    """
    earlier = work / "earlier" / time.strftime("%Y-%m-%d %H.%M.%S")
    text_by_path: dict[pathlib.Path, str] = {}
    renewed = []
    for notebook in notebooks(folder):
        copy = work / notebook.path.name
        text = _renewed(notebook, copy)
        if text is None:
            continue
        if copy.exists():
            renewed.append(copy)
            text_by_path[earlier / copy.name] = copy.read_text("utf-8")
        text_by_path[copy] = text
    # Written now that no notebook has turned out to be damaged.
    for path, text in text_by_path.items():
        files.write(path, text)
    _copy_other_files(work, folder)
    return renewed


def _renewed(notebook: Notebook, copy: pathlib.Path) -> str | None:
    """Write a notebook for the learner, with the answers of their copy; None if that is current."""
    text = notebook.path.read_text("utf-8")
    # The copy says which edition of the original it was made from.
    edition = hashlib.sha256(text.encode()).hexdigest()[:12]
    node = json.loads(text)
    what = f"{notebook.path.name} has an exercise's cell without an id."
    with unreadable(what, "Save it in form 4.5, whose cells have ids, or take the tag away."):
        answers = _answers(node)
    if copy.exists():
        what = f"work/{copy.name} is damaged: its answers can't be read."
        fix = "Move it elsewhere and run the same command again: it makes a new copy."
        with unreadable(what, fix):
            copied_node = json.loads(copy.read_text("utf-8"))
            if copied_node["metadata"].get("course_edition") == edition:
                return None
            # Answers replace the stubs of their cells; those of cells that are gone are not taken.
            answers |= _answers(copied_node)
    for cell in node["cells"]:
        if cell["cell_type"] == "code":
            cell["outputs"] = []
            cell["execution_count"] = None
        if _is_answer(cell):
            cell["source"] = answers[cell["id"]]
    node["metadata"]["course_edition"] = edition
    return json.dumps(node, ensure_ascii=False, indent=1) + "\n"


def _answers(node: dict) -> dict[str, str | list[str]]:
    return {cell["id"]: cell["source"] for cell in node["cells"] if _is_answer(cell)}


def _is_answer(cell: dict) -> bool:
    return not _ANSWERS.isdisjoint(cell["metadata"].get("tags", ()))


def _copy_other_files(work: pathlib.Path, folder: pathlib.Path) -> None:
    """Copy texts, pictures and data; other editions and an editor's hidden files stay behind."""
    editions = {language.LOCALE.name, *language.translations()}
    for path in folder.rglob("*"):
        parts = path.relative_to(folder).parts
        is_hidden = any(part.startswith(".") for part in parts)
        if path.suffix == ".ipynb" or is_hidden or not editions.isdisjoint(parts):
            continue
        if path.is_file():
            outputs.write_own(work.joinpath(*parts), path.read_bytes(), work / "earlier")
