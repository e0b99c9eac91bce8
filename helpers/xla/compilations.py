"""How often XLA compiles while a block runs."""

import contextlib
import dataclasses
from collections.abc import Iterator

from helpers.base.errors import CourseError
from helpers.xla.profiler import recording

# Written by XLA:CPU once for each module it turns into machine code.
_COMPILE_EVENT = "JitCompiler::Compile"


@dataclasses.dataclass
class Compilations:
    """How many programs XLA compiled while a block ran; see ``count_compilations``."""

    _count: int | None = dataclasses.field(default=None, init=False)

    @property
    def count(self) -> int:
        """The number of compilations.

        Raises:
            CourseError: The block has not ended, or ended with an error.
        """
        if self._count is None:
            raise CourseError(
                "There is no count yet.",
                "The profiler hands over what it saw when its block ends without an error.",
                "Read .count below the `with` block, one indentation to the left.",
            )
        return self._count

    def __repr__(self) -> str:
        return "Compilations(counting)" if self._count is None else f"Compilations({self._count})"


def _compilation(event: str) -> str | None:
    name = event.partition("#")[0]
    return name if name == _COMPILE_EVENT else None


@contextlib.contextmanager
def count_compilations() -> Iterator[Compilations]:
    """Count how often XLA compiles a program while a block runs; read ``.count`` when it has ended.

    Counts machine code made by XLA for the CPU, not traces: TensorFlow traces a function once for
    all lengths where its signature says so, and XLA still compiles it for each length. Looking at
    a program (``hlo``) compiles it, too.

    Raises:
        CourseError: Another profiler runs already (these blocks can't be nested), or other code
            stopped this one.
    """
    compilations = Compilations()
    with recording("Compilations", _compilation) as seen:
        yield compilations
    compilations._count = len(seen)
