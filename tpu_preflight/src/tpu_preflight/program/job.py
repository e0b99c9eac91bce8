"""What the compiler gets: a program for one target. Imports neither TensorFlow nor JAX."""

import dataclasses
from collections.abc import Callable
from typing import Any

from tpu_preflight.program import Program
from tpu_preflight.program.messages import Source


@dataclasses.dataclass(frozen=True)
class Job:
    """A program for one target."""

    target: str  # such as ``v5e-8``
    replicas: int  # devices of the target
    # Rows of the batch on each; None where the arguments have no common first size.
    rows: int | None
    specs: tuple[Any, ...]  # what one replica gets
    program: Program  # for all replicas together where that can be exported, else for one
    find: Callable[[str], Source | None]  # gives the learner's line of an operation of the program
    graph: Any = None  # TensorFlow's graph of it; None for a function of JAX
