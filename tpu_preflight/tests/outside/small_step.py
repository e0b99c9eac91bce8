"""A step of JAX that is ready: what workflows try an installed wheel with."""

import jax
import jax.numpy as jnp


def loss(weights, x, y):
    """Give the mean squared error of a linear model."""
    return jnp.mean(jnp.square(x @ weights - y))


@jax.jit
def train_step(weights, x, y):
    """Take one step of gradient descent."""
    return weights - 0.1 * jax.grad(loss)(weights, x, y)


def build():
    """Give the step, and the shapes of its arguments."""
    weights = jax.ShapeDtypeStruct((512, 1024), jnp.float32)
    x = jax.ShapeDtypeStruct((128, 512), jnp.float32)
    y = jax.ShapeDtypeStruct((128, 1024), jnp.float32)
    return train_step, (weights, x, y)
