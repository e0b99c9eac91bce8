"""Tables of what the compilers said, as text: a line for each row, a column for each field.

A row is a frozen dataclass of strings, whole numbers and truth values. Backslash, line feed and tab
are escaped.
"""

import dataclasses
import pathlib
import re
import typing

from helpers.base import files
from helpers.base.errors import CourseError
from helpers.base.settings import ROOT


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace("\t", "\\t")


def _unescaped(text: str) -> str:
    pairs = {"\\\\": "\\", "\\n": "\n", "\\t": "\t"}
    return re.sub(r"\\[\\nt]", lambda found: pairs[found[0]], text)


def _cell(value: str | int | bool) -> str:
    return ("yes" if value else "") if isinstance(value, bool) else _escaped(str(value))


_READ = {bool: lambda text: text == "yes", int: int, str: _unescaped}


def short(text: str) -> str:
    """Give the first line of a message, cut after 240 characters (``…``)."""
    line = text.partition("\n")[0]
    return line if len(line) <= 240 else f"{line[:239]}…"


@dataclasses.dataclass(frozen=True)
class Table:
    """All that was seen, with the versions that it was seen with; its rows have names and states.

    A subclass says where it is stored, the rows' dataclass, what they are called, what is good of
    them, what else there is to know, and how to make the table again.
    """

    versions: str  # without a semicolon
    rows: tuple[typing.Any, ...]

    stored: typing.ClassVar[pathlib.Path]
    kind: typing.ClassVar[type]
    what: typing.ClassVar[str]
    good: typing.ClassVar[str]
    about: typing.ClassVar[str]
    again: typing.ClassVar[str]

    def __getitem__(self, name: str) -> typing.Any:
        """Look up a row by name; a `CourseError` if there is none."""
        for row in self.rows:
            if row.name == name:
                return row
        raise CourseError(
            f"There is no {self.what.removesuffix('s')} {name!r} in the table.",
            f"It has {len(self.rows)} names, such as {self.rows[0].name}.",
            f"Look into {self.stored.relative_to(ROOT)}.",
        )

    def __repr__(self) -> str:
        good = sum(row.state in ("compiles", "bounded") for row in self.rows)
        return f"{len(self.rows)} {self.what} ({self.versions}): {good} {self.good}"

    def write(self, path: pathlib.Path | None = None) -> None:
        """Keep at least one row as text.

        Raises:
            files.CantWrite: The disk is full, or the folder is not writable.
        """
        names = [field.name for field in dataclasses.fields(self.kind)]
        lines = [f"# {self.versions}; {self.about}", "\t".join(names)]
        lines += ["\t".join(_cell(getattr(row, name)) for name in names) for row in self.rows]
        files.write(path or self.stored, "\n".join(lines) + "\n")

    @classmethod
    def read(cls, path: pathlib.Path | None = None) -> typing.Self:
        """Read the stored table, or another.

        Raises:
            CourseError: The file is missing, or something else.
        """
        path = path or cls.stored
        types = typing.get_type_hints(cls.kind)
        names = [field.name for field in dataclasses.fields(cls.kind)]
        try:
            first, head, *lines = path.read_text("utf-8").splitlines()
            if not first.startswith("# ") or head.split("\t") != names:
                raise ValueError(f"its first lines are {first[:40]!r} and {head[:40]!r}")
            rows = []
            for line in lines:
                told = zip(names, line.split("\t"), strict=True)
                rows.append(cls.kind(**{name: _READ[types[name]](text) for name, text in told}))
        except (OSError, ValueError) as error:
            raise CourseError(
                f"{path.name} can't be read as the table of {cls.what}.",
                f"{type(error).__name__}: {error}".replace(str(path), path.name),
                f"Make it again: {cls.again}",
            ) from error
        return cls(first.removeprefix("# ").partition(";")[0], tuple(rows))
