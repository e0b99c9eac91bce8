"""The exercises of notebook 11: what ``jax.jit`` takes, a masked mean, where to cut an array."""

import math

from helpers.exercises import Wrong, returned


def _check_mean_loss(answer: object) -> str:
    import jax
    import jax.numpy as jnp

    losses = jnp.array([1.0, 5.0, 2.0, 6.0])
    try:
        given = returned(jax.jit(answer)(losses, jnp.array([3, -100, 0, 7])))
    except (jax.errors.JAXTypeError, jax.errors.JAXIndexError) as error:
        raise Wrong(f"jax.jit refuses it: {type(error).__name__}.") from error
    if not math.isclose(given, 3.0, rel_tol=1e-6):
        raise Wrong(f"The mean of [1, 2, 6] is 3, not {float(given):.4g}: 5 has no label.")
    none = float(jax.jit(answer)(losses, jnp.full(4, -100)))
    if none != 0.0:
        raise Wrong(f"Where no position has a label it gives {none}, and 0 is asked for.")
    return "One program, for whichever positions count."


def _check_cut(answer: object) -> str:
    cases = {
        (64, 3): ("data", None),
        (16, 64): (None, "data"),
        (64, 64): ("data", None),
        (3, 5): (None, None),
        (100,): (None,),
        (): (),
    }
    for shape, right in cases.items():
        given = returned(answer(shape, 8))
        if given != right:
            raise Wrong(f"An array of {shape}, over 8 devices: {right}, not {given}.")
    return "jax.sharding.PartitionSpec(*cut(shape, devices)) is the sharding."
