"""What is asked of the compiler: a program for one target. Knows neither TensorFlow nor JAX."""

import dataclasses
from collections.abc import Callable
from typing import Any

from helpers.xla.messages import Source
from helpers.xla.program import Program


@dataclasses.dataclass(frozen=True)
class Job:
    """A program for one target.

    Attributes:
        target: Such as ``v5e-8``.
        replicas: Devices of the target.
        rows: Rows of the batch on each; None where the arguments have no common first size.
        specs: What one replica gets.
        program: For all replicas together where that can be exported, else for one.
        find: Gives the learner's line of an operation of the program.
        graph: TensorFlow's graph of it; None for a function of JAX.
    """

    target: str
    replicas: int
    rows: int | None
    specs: tuple[Any, ...]
    program: Program
    find: Callable[[str], Source | None]
    graph: Any = None
