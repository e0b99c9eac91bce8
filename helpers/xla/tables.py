"""Tables of what the compilers said, as text: a line for each row, a column for each field.

A row is a frozen dataclass of strings, whole numbers and truth values. Backslash, line feed and tab
are escaped.
"""

import dataclasses
import pathlib
import re
import typing
from collections.abc import Iterable

from helpers.base import files
from helpers.base.errors import CourseError


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace("\t", "\\t")


def _unescaped(text: str) -> str:
    pairs = {"\\\\": "\\", "\\n": "\n", "\\t": "\t"}
    return re.sub(r"\\[\\nt]", lambda found: pairs[found[0]], text)


def _cell(value: str | int | bool) -> str:
    return ("yes" if value else "") if isinstance(value, bool) else _escaped(str(value))


_READ = {bool: lambda text: text == "yes", int: int, str: _unescaped}


def write(path: pathlib.Path, versions: str, about: str, rows: Iterable[typing.Any]) -> None:
    """Keep rows of one kind as text.

    Args:
        path: The file.
        versions: Of the packages that the rows were seen with; without a semicolon.
        about: What else there is to know, one line.
        rows: At least one.

    Raises:
        files.CantWrite: The disk is full, or the folder is not writable.
    """
    rows = list(rows)
    names = [field.name for field in dataclasses.fields(rows[0])]
    lines = [f"# {versions}; {about}", "\t".join(names)]
    lines += ["\t".join(_cell(getattr(row, name)) for name in names) for row in rows]
    files.write(path, "\n".join(lines) + "\n")


def read(path: pathlib.Path, kind: type, what: str, again: str) -> tuple[str, tuple]:
    """Read the versions and the rows of a table.

    Args:
        path: The file.
        kind: The rows' dataclass.
        what: What it is the table of, for the error.
        again: How to make it again, for the error.

    Raises:
        CourseError: The file is missing, or something else.
    """
    types = typing.get_type_hints(kind)
    names = [field.name for field in dataclasses.fields(kind)]
    try:
        first, head, *lines = path.read_text("utf-8").splitlines()
        if not first.startswith("# ") or head.split("\t") != names:
            raise ValueError(f"its first lines are {first[:40]!r} and {head[:40]!r}")
        rows = []
        for line in lines:
            told = zip(names, line.split("\t"), strict=True)
            rows.append(kind(**{name: _READ[types[name]](text) for name, text in told}))
    except (OSError, ValueError) as error:
        raise CourseError(
            f"{path.name} can't be read as the table of {what}.",
            f"{type(error).__name__}: {error}".replace(str(path), path.name),
            f"Make it again: {again}",
        ) from error
    return first.removeprefix("# ").partition(";")[0], tuple(rows)
