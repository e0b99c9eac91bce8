"""The public address, carried everywhere."""

import pathlib
import re
import tomllib

from helpers.base import files
from helpers.base.errors import CourseError
from helpers.base.settings import ROOT


def _write_changed(
    old: dict[pathlib.Path, str], new: dict[pathlib.Path, str]
) -> list[pathlib.Path]:
    """Write the texts that differ, in their order; give their files, sorted."""
    changed = [path for path in old if new[path] != old[path]]
    for path in changed:
        files.write(path, new[path])
    return sorted(changed)


def _repository(root: pathlib.Path) -> str:
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    return project["urls"]["Repository"]


def set_repository(name: str, root: pathlib.Path = ROOT) -> list[pathlib.Path]:
    """Carry a new public address, ``owner/name``, to all notebooks and pages that name it.

    Gives the files that changed, sorted.

    Raises:
        CourseError: ``name`` is not of the form ``owner/name``.
    """
    if not re.fullmatch(r"\w[\w.-]*/\w[\w.-]*", name, re.ASCII):
        raise CourseError(
            f"{name!r} is no repository.",
            "The badges and the setup cell lead to github.com/owner/name.",
            "Call it as: make badges REPO=owner/name",
        )
    own = re.escape(_repository(root).removeprefix("https://github.com/"))
    link = re.compile(rf"((?:github\.com|colab\.research\.google\.com/github)/){own}(?![\w.-])")
    # pyproject.toml last: until it is written, the same call repairs an interrupted one.
    pages = (
        "README.md",
        "tpu_preflight/README.md",
        "CHANGELOG.md",
        "CITATION.cff",
        "pyproject.toml",
    )
    notebooks = sorted((root / "notebooks").glob("*.ipynb"))
    paths = [*notebooks, *(root / "notebooks").glob("*.md"), *map(root.joinpath, pages)]
    old = {path: path.read_text("utf-8") for path in paths}
    return _write_changed(old, {path: link.sub(rf"\g<1>{name}", old[path]) for path in paths})
