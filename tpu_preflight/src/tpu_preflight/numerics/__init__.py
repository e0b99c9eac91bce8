"""Numbers as on a TPU, on this CPU: matrix products of bfloat16 numbers, added up in float32.

A TPU multiplies so by default, in programs of float32, too: "matrix multiplication operations with
bfloat16 values and accumulations with IEEE float32 values", rounded to nearest, ties to even
(https://cloud.google.com/tpu/docs/bfloat16; https://docs.jax.dev/en/latest/201/precision.html;
2026-11). Here both operands of every such product are rounded in TensorFlow's own program, and jax
runs it, in a process of its own (`child`).

That is one pass, the default. TensorFlow asks for more passes after
``tf.config.experimental.enable_tensor_float_32_execution(False)``; such products are left alone.
What else a TPU computes in its own way (exponentials, the order of a sum) is not imitated, and
nothing here was compared with a TPU.
"""

from tpu_preflight.numerics.results import Numbers, Value, together
from tpu_preflight.numerics.running import NotRun, compare, compare_batches
