"""Google's TPU compiler without a TPU: does it compile, does it fit, what does it cost?

``export`` turns a TensorFlow function into XLA's program; ``compile`` hands that program to the
compiler inside libtpu, ahead of time, in a process of its own (`server`). Nothing is run, so
seconds on a TPU are here only as bounds (``roofline``) and as the compiler's own estimate
(``profile``).

To go the same route by hand: ``experimental_get_compiler_ir`` of a ``tf.function`` gives the HLO
module, ``jax.extend.mlir.hlo_to_stablehlo`` translates it, and jax compiles it for the devices of a
described topology (https://docs.jax.dev/en/latest/aot.html).

Imports TensorFlow only inside ``export``.
"""

from tpu_preflight.compiler.client import Compiled, compile
from tpu_preflight.compiler.cost import Roofline, link_seconds, per_device, roofline
from tpu_preflight.compiler.execution import without_products
from tpu_preflight.compiler.memory import LargestBatch, Padding, largest_batch, padding
from tpu_preflight.compiler.profiling import Profile, Share, profile
from tpu_preflight.compiler.server_process import started, versions
from tpu_preflight.program import Bounded, NotCompilable, Parameter, Program, export
