"""Five small programs, each the same operations in JAX and in TensorFlow.

Each takes a state and gives the next, so that steps follow each other without the host. The values
are constant and stay so: a step is timed, and what it computes is known.
"""

import dataclasses
import types
from collections.abc import Callable
from typing import Any

HEADS = 12  # of attention

# JAX or TensorFlow, by the few functions that the programs need.
Operations = types.SimpleNamespace


@dataclasses.dataclass(frozen=True)
class Array:
    """An array that is filled with one value."""

    shape: tuple[int, ...]
    dtype: str
    value: float = 1.0

    def smaller(self, factor: int) -> "Array":
        """Divide each side by a factor, but leave at least 1."""
        shape = tuple(max(side // factor, 1) for side in self.shape)
        # What a product adds up becomes shorter, so each weight becomes larger.
        value = self.value
        if value not in (0.0, 1.0):
            value *= factor
        return Array(shape, self.dtype, value)


@dataclasses.dataclass(frozen=True)
class Program:
    """A step from a state to the next, with its sizes."""

    name: str
    words: str  # what it does, in a few words
    function: Callable[..., tuple]  # takes operations, the state's arrays, the constants
    state: tuple[Array, ...]
    constants: tuple[Array, ...] = ()

    def smaller(self, factor: int) -> "Program":
        """The same program for a rehearsal, with each side divided by a factor."""
        return dataclasses.replace(
            self,
            state=tuple(array.smaller(factor) for array in self.state),
            constants=tuple(array.smaller(factor) for array in self.constants),
        )


def _weight(rows: int, columns: int, dtype: str = "bfloat16") -> Array:
    """Give weights with which a row of ones stays a row of ones."""
    return Array((rows, columns), dtype, 1 / rows)


def product(ops: Operations, x: Any, weights: Any) -> tuple:
    """Multiply two square matrices."""
    return (x @ weights,)


def addition(ops: Operations, x: Any) -> tuple:
    """Read each number, add one, write it."""
    return (x + 1.0,)


def softmax(ops: Operations, x: Any) -> tuple:
    """Exponentials and sums, which the vector unit computes."""
    return (ops.softmax(x),)


def layer(
    ops: Operations, x: Any, query: Any, key: Any, value: Any, out: Any, wide: Any, narrow: Any
) -> tuple:
    """Attention and two products, as in a layer of BERT-base without its normalizations."""
    rows, length, width = x.shape
    by_head = [rows, length, HEADS, width // HEADS]
    queries = ops.reshape(x @ query, by_head)
    keys = ops.reshape(x @ key, by_head)
    values = ops.reshape(x @ value, by_head)
    attention = ops.softmax(ops.einsum("bqhd,bkhd->bhqk", queries, keys))
    mixed = ops.einsum("bhqk,bkhd->bqhd", attention, values)
    x = x + ops.reshape(mixed, [rows, length, width]) @ out
    # ReLU instead of GELU, which the two libraries approximate differently.
    return (x + ops.maximum(x @ wide, 0) @ narrow,)


def training(ops: Operations, wide: Any, narrow: Any, speeds: Any, other: Any, x: Any) -> tuple:
    """A training step: two products, their gradients by hand, and an update with momentum."""
    # As in mixed precision: products in bfloat16, weights in float32.
    wide_16 = ops.cast(wide, x.dtype)
    narrow_16 = ops.cast(narrow, x.dtype)
    hidden = ops.maximum(x @ wide_16, 0)
    # Of half the squared error; so this is also its gradient.
    error = hidden @ narrow_16 - x
    narrow_gradient = ops.transpose(hidden) @ error
    hidden_gradient = error @ ops.transpose(narrow_16) * ops.cast(hidden > 0, x.dtype)
    wide_gradient = ops.transpose(x) @ hidden_gradient
    speeds = 0.9 * speeds + ops.cast(wide_gradient, wide.dtype)
    other = 0.9 * other + ops.cast(narrow_gradient, narrow.dtype)
    return wide - 1e-3 * speeds, narrow - 1e-3 * other, speeds, other


PROGRAMS = (
    Program(
        "product",
        "8192 × 8192 times 8192 × 8192, bfloat16",
        product,
        state=(Array((8192, 8192), "bfloat16"),),
        constants=(_weight(8192, 8192),),
    ),
    Program(
        "layer",
        "a layer of BERT-base on 64 rows of 512 tokens, forward",
        layer,
        state=(Array((64, 512, 768), "bfloat16"),),
        constants=(*[_weight(768, 768)] * 4, _weight(768, 3072), _weight(3072, 768)),
    ),
    Program(
        "addition",
        "one more for 16384 × 16384 numbers, float32",
        addition,
        state=(Array((16384, 16384), "float32"),),
    ),
    Program(
        "softmax",
        "softmax of 32768 rows of 8192 numbers, float32",
        softmax,
        state=(Array((32768, 8192), "float32"),),
    ),
    Program(
        "training",
        "a training step of 2 × 67 million weights on 4096 rows",
        training,
        state=(
            _weight(4096, 16384, "float32"),
            _weight(16384, 4096, "float32"),
            Array((4096, 16384), "float32", 0.0),
            Array((16384, 4096), "float32", 0.0),
        ),
        constants=(Array((4096, 4096), "bfloat16"),),
    ),
)


def jax_operations() -> Operations:
    """Name JAX's functions."""
    import jax
    import jax.numpy as jnp

    return Operations(
        cast=jnp.astype,
        einsum=jnp.einsum,
        maximum=jnp.maximum,
        reshape=jnp.reshape,
        softmax=jax.nn.softmax,
        transpose=jnp.transpose,
    )


def tensorflow_operations() -> Operations:
    """Name TensorFlow's functions."""
    import tensorflow as tf

    return Operations(
        cast=tf.cast,
        einsum=tf.einsum,
        maximum=tf.maximum,
        reshape=tf.reshape,
        softmax=tf.nn.softmax,
        transpose=tf.transpose,
    )
