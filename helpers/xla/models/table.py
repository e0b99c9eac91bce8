"""The table of models: what each compiler said, stored as text."""

import dataclasses

from helpers.base.settings import ROOT
from helpers.xla import tables

TARGET = "v5e-8"


@dataclasses.dataclass(frozen=True)
class Row:
    """What was seen of one TensorFlow model class of transformers, in tiny.

    Attributes:
        kind: Its folder in ``transformers/models``.
        name: Its class.
        cpu: XLA's verdict on the forward step for a CPU: ``compiles``, ``refused``; ``not built``
            where the class can't be built, ``no package`` where transformers needs a package that
            the lock lacks, ``crashed`` and ``timed out`` where that happened.
        tpu: Of the forward step, the TPU compiler's: ``compiles``, ``refused``, ``crashed``,
            ``timed out``; ``not reached`` where TensorFlow made no program to be handed to it, or
            ``no package``.
        training: Of loss and gradients, the TPU compiler's, with the same words.
        bridge: What TensorFlow's TPU bridge says of loss and gradients before any compiler, in the
            words of `bridge.verdict`.
        bounded: How many operations of the forward step make a size that depends on values, so that
            the largest possible one is used.
        where: The line of transformers that is refused, or makes the first such size.
        message: The first line of the first refusal; empty where all compile.
    """

    kind: str
    name: str
    cpu: str
    tpu: str
    training: str
    bridge: str
    bounded: int
    where: str
    message: str

    @property
    def state(self) -> str:
        """The verdicts in a word, or a few."""
        if self.cpu not in ("compiles", "refused"):
            return self.cpu
        if self.cpu == "refused" and self.tpu in ("refused", "not reached"):
            return "refused"
        if self.cpu != self.tpu:
            return "differs"
        if self.training != "compiles":
            return "forward only"
        return "bounded" if self.bounded else "compiles"


class Table(tables.Table):
    """All that was seen, with the versions of the packages that it was seen with."""

    stored = ROOT / "notebooks" / "data" / "models.tsv"
    kind, what, good = Row, "models", "compile, with their gradients"
    about = f"tiny, random weights; TPU {TARGET}, nothing was run"
    again = "tpu-course models (half an hour)"
