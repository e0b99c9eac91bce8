"""The table of operations: what each compiler said, stored as text and shown as a page."""

import base64
import dataclasses
import hashlib
import itertools
import pathlib

from helpers.base import html
from helpers.base.errors import CourseError
from helpers.base.settings import ROOT
from helpers.xla import tables

STORED = ROOT / "notebooks" / "data" / "ops.tsv"
PAGE = ROOT / "build" / "ops.html"
TARGET = "v5e-8"


@dataclasses.dataclass(frozen=True)
class Row:
    """What was seen of one operation or idiom.

    Attributes:
        subject: The heading it stands under.
        name: Its name.
        code: What was compiled, in Python.
        arguments: Types and shapes: ``float32[8]``.
        cpu: XLA's verdict on a CPU: ``compiles`` or ``refused``.
        tpu: The TPU compiler's: ``compiles``, ``refused``, ``crashed``; ``not reached`` where
            TensorFlow made no program that could be handed to it.
        bridge: What TensorFlow's TPU bridge says of it before any compiler: ``accepted``; ``host:``
            and the operations that would run there with soft device placement, refused without;
            ``refused``; ``not traced``.
        bounded: Whether a size depends on values, so that the largest possible one is used.
        message: The first line of the first refusal; empty where all compile.
    """

    subject: str
    name: str
    code: str
    arguments: str
    cpu: str
    tpu: str
    bridge: str
    bounded: bool
    message: str

    @property
    def state(self) -> str:
        """Both verdicts in a word: ``compiles``, ``bounded``, ``differs`` or ``refused``."""
        if self.cpu == self.tpu == "compiles":
            return "bounded" if self.bounded else "compiles"
        return "refused" if self.tpu in ("not reached", self.cpu) else "differs"


@dataclasses.dataclass(frozen=True)
class Table:
    """All that was seen, with the versions of TensorFlow, jax and libtpu that it was seen with."""

    versions: str
    rows: tuple[Row, ...]

    def __getitem__(self, name: str) -> Row:
        """Look up an operation's row by name; a `CourseError` if there is none."""
        for row in self.rows:
            if row.name == name:
                return row
        raise CourseError(
            f"There is no operation {name!r} in the table.",
            f"It has {len(self.rows)} names, such as {self.rows[0].name}.",
            "Look for it in the page: tpu-course ops --stored",
        )

    def __repr__(self) -> str:
        both = sum(row.state in ("compiles", "bounded") for row in self.rows)
        return f"{len(self.rows)} operations ({self.versions}): {both} compile for CPU and TPU"


def write(table: Table, path: pathlib.Path = STORED) -> None:
    """Keep a table as text, one line for each operation.

    Raises:
        files.CantWrite: The disk is full, or the folder is not writable.
    """
    about = f"from shapes and types alone; TPU {TARGET}, nothing was run"
    tables.write(path, table.versions, about, table.rows)


def read(path: pathlib.Path = STORED) -> Table:
    """Read the stored table.

    Raises:
        CourseError: The file is missing, or something else.
    """
    return Table(*tables.read(path, Row, "operations", "tpu-course ops (3 minutes)"))


def page(table: Table) -> str:
    """Write the table as one page that loads nothing and can be searched.

    Every text is escaped; the only script that may run is the search.
    """
    script = html.text("ops.js")
    return html.render(
        "ops.html",
        table=table,
        groups=itertools.groupby(table.rows, lambda row: row.subject),
        target=TARGET,
        script=script,
        digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )
