"""The table of operations: what each compiler said, stored as text and shown as a page."""

import base64
import dataclasses
import hashlib
import itertools

from helpers.base import html
from helpers.base.settings import ROOT
from helpers.xla import tables

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


class Table(tables.Table):
    """All that was seen, with the versions of TensorFlow, jax and libtpu that it was seen with."""

    stored = ROOT / "notebooks" / "data" / "ops.tsv"
    kind, what, good = Row, "operations", "compile for CPU and TPU"
    about = f"from shapes and types alone; TPU {TARGET}, nothing was run"
    again = "tpu-course ops (3 minutes)"


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
