"""A function as XLA's program, ready for a compiler: from TensorFlow, or from JAX (`jax_export`).

Traced first, then written in XLA's operations; nothing of it runs. `instructions` reads the text of
a compiled program. Imports TensorFlow, or JAX, only where a function of it is given.
"""

from tpu_preflight.program.tensorflow_export import (
    Bounded,
    Parameter,
    Program,
    elsewhere,
    export,
    graph_operations,
    line_finder,
    place_of,
    program,
    restore_names,
)
from tpu_preflight.program.tracing import TIMEOUT, NotCompilable, Resource, Tracing, trace
