"""The learner's own copy of the notebooks, in the folder ``work``, which Git doesn't track.

So an update of the course (``git pull``) meets no changed file, and answers stay: they are carried
into the new edition of a notebook, cell by cell, by the cells' ids.
"""

import hashlib
import json
import pathlib
import time

from course import outputs
from course.catalog import NOTEBOOKS, notebooks
from helpers.base import files, language
from helpers.base.errors import unreadable

WORK = language.WORK

_ANSWERS = {"exercise", "question"}  # tags of the cells that a learner fills in


def prepare(work: pathlib.Path = WORK, folder: pathlib.Path = NOTEBOOKS) -> list[pathlib.Path]:
    """Bring the learner's copies up to date; give those that got a new edition.

    A notebook that isn't there is copied, without its outputs: they would answer the questions. One
    whose original has changed since is written anew with the learner's answers in it. What they
    show and link to is copied: a server shows no file outside of ``work``. A copy that was changed
    is kept in ``work/earlier``, in a folder of the time.

    Raises `CourseError`: A notebook is damaged, or the folder can't be written.
    """
    written, earlier = {}, work / "earlier" / time.strftime("%Y-%m-%d %H.%M.%S")
    for notebook in notebooks(folder):
        text = notebook.path.read_text("utf-8")
        edition = hashlib.sha256(text.encode()).hexdigest()[:12]
        target = work / notebook.path.name
        new = json.loads(text)
        what = f"{notebook.path.name} has an exercise's cell without an id."
        with unreadable(what, "Save it in form 4.5, whose cells have ids, or take the tag away."):
            answers = {cell["id"]: cell["source"] for cell in new["cells"] if _asks(cell)}
        if target.exists():
            what = f"work/{target.name} is damaged: its answers can't be read."
            fix = "Move it elsewhere and run the same command again: it makes a new copy."
            with unreadable(what, fix):
                old = json.loads(target.read_text("utf-8"))
                if old["metadata"].get("course_edition") == edition:
                    continue
                answers |= {cell["id"]: cell["source"] for cell in old["cells"] if _asks(cell)}
            written[earlier / target.name] = target.read_text("utf-8")
        for cell in new["cells"]:
            if cell["cell_type"] == "code":
                cell |= {"outputs": [], "execution_count": None}
            if _asks(cell):
                cell["source"] = answers[cell["id"]]
        new["metadata"]["course_edition"] = edition
        written[target] = json.dumps(new, ensure_ascii=False, indent=1) + "\n"
    for path, text in written.items():  # now that nothing is damaged
        files.write(path, text)
    editions = {language.LOCALE.name, *language.translations()}
    for path in filter(pathlib.Path.is_file, folder.rglob("*")):
        parts = path.relative_to(folder).parts
        if path.suffix != ".ipynb" and not any(x[0] == "." or x in editions for x in parts):
            outputs.write_own(work.joinpath(*parts), path.read_bytes(), work / "earlier")
    return [work / path.name for path in written if path.parent == earlier]


def _asks(cell: dict) -> bool:
    return not _ANSWERS.isdisjoint(cell["metadata"].get("tags", ()))
