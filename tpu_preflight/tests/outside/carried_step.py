"""Two steps whose loop carries an array like the batch: of the loss of its sharding, one cares."""

import sys

import jax
import jax.numpy as jnp

SHAPE = (4096, 1024)
WHOLE = "f32[4096,1024]"


def run(carry, weights):
    """Add the weights' sum in each round: nothing here is sharded."""

    def add(carry, _):
        return jnp.tanh(carry + jnp.sum(weights)), None

    carry, _ = jax.lax.scan(add, carry, None, length=3)
    return jnp.sum(carry @ weights)


def replicated(x, weights):
    return run(jnp.zeros_like(x), weights) + jnp.sum(x)


def sharded(x, weights):
    return run(x * 0, weights) + jnp.sum(x)


if __name__ == "__main__":
    # With eight virtual devices: does each of them compute the whole array?
    mesh = jax.make_mesh((8,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    by_rows = jax.NamedSharding(mesh, jax.P("data"))
    whole = jax.NamedSharding(mesh, jax.P())
    x = jax.ShapeDtypeStruct(SHAPE, jnp.float32, sharding=by_rows)
    weights = jax.ShapeDtypeStruct((1024, 1024), jnp.float32, sharding=whole)
    for step in (replicated, sharded):
        program = jax.jit(step).lower(x, weights).compile().as_text()
        sys.stdout.write(f"{step.__name__} {WHOLE in program}\n")
