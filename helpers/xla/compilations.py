"""How often XLA compiles while a block runs."""

import contextlib
import dataclasses
from collections.abc import Iterator

from helpers.xla.profiler import recording


@dataclasses.dataclass
class Compilations:
    """How many programs XLA compiled while a block ran; see ``count_compilations``."""

    count: int | None = None  # None until the block has ended


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
    # XLA:CPU writes it once for each module that it turns into machine code.
    with recording("Compilations", r"(JitCompiler::Compile)(?:#.*)?") as seen:
        yield compilations
    compilations.count = len(seen)
