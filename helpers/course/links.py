"""All addresses outside the course, on one page, each with the places that name it and a month."""

import ast
import datetime
import io
import json
import pathlib
import re
import tokenize
import tomllib
from collections.abc import Iterator
from typing import Any

from helpers.base import files
from helpers.base.settings import ROOT

PAGE = pathlib.PurePath("notebooks/LINKS.md")

_ADDRESS = re.compile(r"https?://[^\s<>\"'`\\)\]|]+")
_PAPER = re.compile(r"\b(doi:|arXiv:)([\w./-]+)")
_PAPERS = {"doi:": "https://doi.org/", "arXiv:": "https://arxiv.org/abs/"}
_BADGES = "https://colab.research.google.com/"
_OPENING = """\
# All links out of the course

Made from the notebooks, the pages and the helpers' docstrings by `python -m helpers links`. The
month is the one in which the sentence beside the link was written or checked, from the page or from
a stored copy of it. Whether an address answers today is **not** tested: no test of the course needs
a network.

| address | named in | month |
| --- | --- | --- |
"""


def _python(source: str) -> str:
    """Give what a module says to its readers: comments and docstrings."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    said = [token.string for token in tokens if token.type == tokenize.COMMENT]
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, kinds)]
    return "\n".join([*said, *filter(None, map(ast.get_docstring, nodes))])


def _texts(root: pathlib.Path) -> Iterator[tuple[pathlib.Path, str]]:
    """Give each file that may name an address, and its text."""
    for path in sorted((root / "notebooks").glob("*.ipynb")):
        cells = json.loads(path.read_text("utf-8"))["cells"]
        yield path, "\n".join("".join(cell["source"]) for cell in cells)
    for path in sorted([*root.glob("*.md"), *(root / "notebooks").rglob("*.md")]):
        if path != root / PAGE:
            yield path, path.read_text("utf-8")
    for path in sorted((root / "helpers").rglob("*.py")):
        yield path, _python(path.read_text("utf-8"))
    for path in sorted((root / "helpers").rglob("*.toml")):
        yield path, path.read_text("utf-8")


def find(text: str) -> list[str]:
    """Find the addresses in a text.

    Args:
        text: Markdown, or any other.

    Returns:
        Each as it is written, without the punctuation of the sentence around it; ``doi:`` and
        ``arXiv:`` become addresses.
    """
    papers = [_PAPERS[kind] + number for kind, number in _PAPER.findall(text)]
    return [found.rstrip(".,:;*_") for found in _ADDRESS.findall(text) + papers]


def collect(root: pathlib.Path = ROOT) -> dict[str, tuple[pathlib.Path, ...]]:
    """Collect the addresses outside the course.

    Args:
        root: The course's folder.

    Returns:
        For each address, sorted, the files that name it. The course's own address and its badges
        are not outside.
    """
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    own = project["urls"]["Repository"], _BADGES
    places: dict[str, list[pathlib.Path]] = {}
    for path, text in _texts(root):
        for address in find(text):
            if not address.startswith(own):
                places.setdefault(address, []).append(path.relative_to(root))
    return {address: tuple(dict.fromkeys(places[address])) for address in sorted(places)}


def months(page: str) -> dict[str, str]:
    """Read the month of each address from the page as it stands.

    Args:
        page: Its text.

    Returns:
        Month, such as ``2026-11``, by address.
    """
    return dict(re.findall(r"^\| <(\S+)> \|.*\| (\d{4}-\d\d) \|$", page, re.MULTILINE))


def _checked(root: pathlib.Path) -> dict[str, str]:
    """Read the month of each address from the tables of facts; of several rows the oldest."""
    found: dict[str, str] = {}

    def look(value: Any) -> None:
        if isinstance(value, dict):
            if "source" in value and "checked" in value:
                for address in find(value["source"]):
                    found[address] = min(value["checked"], found.get(address, "9"))
            value = list(value.values())
        for inner in value if isinstance(value, list) else ():
            look(inner)

    for path in (root / "helpers").rglob("*.toml"):
        look(tomllib.loads(path.read_text("utf-8")))
    return found


def _place(path: pathlib.Path) -> str:
    if path.suffix in (".py", ".toml"):
        return f"`{path}`"
    name = path.name[:2] if path.suffix == ".ipynb" else path.stem
    inside = path.is_relative_to(PAGE.parent)
    return f"[{name}]({path.relative_to(PAGE.parent) if inside else pathlib.PurePath('..') / path})"


def page(root: pathlib.Path = ROOT) -> str:
    """Write the page of all links.

    Args:
        root: The course's folder.

    Returns:
        Markdown. An address has the month of its row of facts; any other keeps the month that it
        has on the page, and a new one gets today's.
    """
    kept = months((root / PAGE).read_text("utf-8")) if (root / PAGE).exists() else {}
    kept |= _checked(root)
    today = datetime.date.today().isoformat()[:7]
    return _OPENING + "".join(
        f"| <{address}> | {', '.join(map(_place, paths))} | {kept.get(address, today)} |\n"
        for address, paths in collect(root).items()
    )


def write(root: pathlib.Path = ROOT) -> int:
    """Write the page of all links into the course.

    Args:
        root: The course's folder.

    Returns:
        How many addresses are on it.
    """
    text = page(root)
    files.write(root / PAGE, text)
    return len(months(text))
