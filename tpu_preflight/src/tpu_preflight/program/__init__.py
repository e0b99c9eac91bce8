"""A function as XLA's program, ready for a compiler: from TensorFlow, or from JAX (`from_jax`).

Traced first, then written in XLA's operations; nothing of it runs. `instructions` reads the text of
a compiled program. Imports TensorFlow, or JAX, only where a function of it is given.
"""

from tpu_preflight.program.from_tensorflow import (
    Bounded,
    Parameter,
    Program,
    export,
    graph_operations,
    line_finder,
    named,
    place_of,
    program,
)
from tpu_preflight.program.tracing import TIMEOUT, NotCompilable, Resource, Tracing, trace
