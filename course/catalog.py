"""The course's map: which notebooks there are, and what they ask.

Reads files only, and brings neither Jupyter nor TensorFlow along.
"""

import json
import pathlib
import re
from collections.abc import Sequence
from dataclasses import dataclass

from helpers.base import language
from helpers.base.errors import CourseError, unreadable
from helpers.base.settings import ROOT

NOTEBOOKS = language.NOTEBOOKS
BUILD = ROOT / "build"
TEMPLATES = pathlib.Path(__file__).with_name("templates")


@dataclass(frozen=True)
class Notebook:
    """One notebook of the course."""

    path: pathlib.Path  # its file, named ``NN_name.ipynb``
    title: str  # the question that it answers: its first heading

    @property
    def name(self) -> str:
        """File name without suffix, such as ``02_xla_rules``."""
        return self.path.stem

    @property
    def number(self) -> str:
        """The two digits of its name."""
        return self.name[:2]


def plain(markdown: str) -> str:
    """Take the marks for code, emphasis and links out of a line of Markdown."""
    return re.sub(r"[`*]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", markdown)).strip()


def slug(heading: str) -> str:
    """Name a heading of the pages as JupyterLab does, so that the notebooks' links reach it.

    The symptoms of a notebook keep their English name, which the links of every edition have.
    """
    return re.sub(r"^\S+ (?=\d\d$)", "Notebook-", heading).replace(" ", "-")


def load(path: pathlib.Path) -> Notebook:
    """Read what the map says about a notebook.

    Raises `CourseError`: There is no such file, or it is not a notebook that can be run.
    """
    fix = f"Repair it, or take what was committed last: `git restore {path}`."
    with unreadable(f"{path.parent.name}/{path.name} can't be used.", fix):
        content = json.loads(path.read_text("utf-8"))
        version = content["nbformat"]
        # Older forms have their cells elsewhere.
        if version != 4:
            raise ValueError(f"its form is {version}, not 4")
        cells = content["cells"]
        text = "".join(cells[0]["source"]) if cells else ""
        heading = re.match(r"#\s+(.+)", text)
        title = heading[1] if heading else path.stem
        return Notebook(path, plain(title))


def notebooks(folder: pathlib.Path = NOTEBOOKS) -> list[Notebook]:
    """Read the notebooks, in order; raise a `CourseError` for one that can't be run, or none."""
    paths = sorted(folder.glob("[0-9][0-9]_*.ipynb"))
    if not paths:
        raise CourseError(
            f"There are no notebooks in {folder}.",
            "The course's notebooks are named NN_name.ipynb and are in the folder notebooks.",
            "Go into a clone of the course's repository and run the same command again.",
        )
    return [load(path) for path in paths]


def edition(code: str | None) -> tuple[pathlib.Path, pathlib.Path]:
    """Give the folders of the notebooks and of the results of a language; None is English.

    Raises `CourseError`: The course isn't translated into it.
    """
    if code in (None, language.ENGLISH):
        return NOTEBOOKS, BUILD
    translations = language.translations()
    if code not in translations:
        raise CourseError(
            f"There is no edition in {code!r}.",
            f"The course is in English (en) and in: {', '.join(translations)}.",
            "Choose one of these, or begin another: CONTRIBUTING.md, Another language.",
        )
    return NOTEBOOKS / code, BUILD / code


def choose(words: Sequence[str], notebooks: Sequence[Notebook]) -> list[Notebook]:
    """Pick notebooks by number or name, in the course's order, each once.

    ``words`` are such as ``2``, ``02``, ``02_xla_rules`` or the path of its file; none means all.

    Raises `CourseError`: One of ``words`` is neither number nor name of one of the ``notebooks``.
    """
    if not words:
        return list(notebooks)
    selection = set()
    for word in words:
        stem = pathlib.PurePath(word).name.removesuffix(".ipynb")
        name = stem.zfill(2) if stem else ""  # an empty word is no 00
        matches = [notebook for notebook in notebooks if name in (notebook.name, notebook.number)]
        if not matches:
            raise CourseError(
                f"There is no notebook {word!r}.",
                f"The notebooks are: {', '.join(notebook.name for notebook in notebooks)}.",
                f"Give a number or a name of these, such as {notebooks[0].number}.",
            )
        selection.update(matches)
    return [notebook for notebook in notebooks if notebook in selection]
