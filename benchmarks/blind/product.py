"""P1: a product of two bfloat16 matrices of 8192 x 8192 on one v6e chip."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

SIZE = 8192


def step_and_arguments(_: str) -> tuple[Callable, tuple]:
    """Give the jitted product, and the shapes of its arguments."""
    matrix = jax.ShapeDtypeStruct((SIZE, SIZE), jnp.bfloat16)
    return jax.jit(jnp.matmul), (matrix, matrix)
