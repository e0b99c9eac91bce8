"""The table of operations: what each compiler said, stored as text and shown as a page."""

import base64
import dataclasses
import hashlib
import itertools
import pathlib
import re

from helpers.base import files, html
from helpers.base.errors import CourseError
from helpers.base.settings import ROOT

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


_NAMES = [field.name for field in dataclasses.fields(Row)]


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


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace("\t", "\\t")


def _unescaped(text: str) -> str:
    pairs = {"\\\\": "\\", "\\n": "\n", "\\t": "\t"}
    return re.sub(r"\\[\\nt]", lambda found: pairs[found[0]], text)


def write(table: Table, path: pathlib.Path = STORED) -> None:
    """Keep a table as text, one line for each operation.

    Raises:
        files.CantWrite: The disk is full, or the folder is not writable.
    """
    lines = [f"# {table.versions}; from shapes and types alone; TPU {TARGET}, nothing was run"]
    lines.append("\t".join(_NAMES))
    for row in table.rows:
        cells = dataclasses.replace(row, bounded="yes" if row.bounded else "")
        lines.append("\t".join(map(_escaped, dataclasses.astuple(cells))))
    files.write(path, "\n".join(lines) + "\n")


def read(path: pathlib.Path = STORED) -> Table:
    """Read the stored table.

    Raises:
        CourseError: The file is missing, or something else.
    """
    try:
        first, head, *lines = path.read_text("utf-8").splitlines()
        if not first.startswith("# ") or head.split("\t") != _NAMES:
            raise ValueError(f"its first lines are {first[:40]!r} and {head[:40]!r}")
        rows = []
        for line in lines:
            told = dict(zip(_NAMES, map(_unescaped, line.split("\t")), strict=True))
            rows.append(Row(**told | {"bounded": told["bounded"] == "yes"}))
    except (OSError, ValueError) as error:
        raise CourseError(
            f"{path.name} can't be read as the table of operations.",
            f"{type(error).__name__}: {error}".replace(str(path), path.name),
            "Make it again (3 minutes): tpu-course ops",
        ) from error
    return Table(first.removeprefix("# ").partition(";")[0], tuple(rows))


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
