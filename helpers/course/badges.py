"""The public address: written once in pyproject.toml, carried from there everywhere."""

import pathlib
import re
import tomllib

from helpers.base import files
from helpers.base.errors import CourseError
from helpers.base.settings import ROOT


class BadRepository(CourseError):
    """The given name is no owner/name."""


def set_repository(name: str, root: pathlib.Path = ROOT) -> list[pathlib.Path]:
    """Set the public address in pyproject.toml, every notebook and the pages that name it.

    Args:
        name: ``owner/name`` on GitHub.
        root: The course's folder.

    Returns:
        The files that changed, sorted.

    Raises:
        BadRepository: ``name`` is not of the form ``owner/name``.
    """
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", name, re.ASCII):
        raise BadRepository(
            f"{name!r} is no repository.",
            "The badges and the setup cell lead to github.com/owner/name.",
            "Call it as: make badges REPO=owner/name",
        )
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    old = project["urls"]["Repository"].removeprefix("https://github.com/")
    link = re.compile(
        rf"((?:github\.com|colab\.research\.google\.com/github)/){re.escape(old)}(?![\w.-])"
    )
    changed = []
    # pyproject.toml last: until it is written, the same call repairs an interrupted one.
    notebooks = sorted((root / "notebooks").glob("*.ipynb"))
    pages = [root / name for name in ("README.md", "CHANGELOG.md", "CITATION.cff")]
    for path in (*notebooks, *pages, root / "pyproject.toml"):
        text = path.read_text("utf-8")
        new = link.sub(rf"\g<1>{name}", text)
        if new != text:
            files.write(path, new)
            changed.append(path)
    return sorted(changed)
