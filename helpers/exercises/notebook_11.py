"""The exercises of notebook 11: a masked mean, a model trained, arrays cut for eight devices."""

import jax
import numpy as np
from jax.sharding import AbstractMesh

from helpers.exercises import Wrong, returned


def _check_mean_loss(answer: object) -> str:
    for labels, right in (([3, -100, 0, 7], 3.0), ([-100] * 4, 0.0)):
        given = returned(jax.jit(answer)(np.float32([1, 5, 2, 6]), np.array(labels)))
        if not abs(float(given) - right) < 1e-5:
            raise Wrong(f"For [1, 5, 2, 6] with {labels} it gives {given:.4g}, not {right:g}.")
    return "One program, for whichever positions count."


def _check_fit(answer: object) -> str:
    x = np.random.default_rng(0).uniform(-1, 1, (512, 2)).astype(np.float32)
    y = x[:, 0] * (1 + x[:, 1])
    given = np.asarray(returned(answer(x[:256], y[:256]))(x[256:]))
    if given.shape != (256,):
        raise Wrong(f"The function gives {given.shape} for 256 rows: one number each, (256,).")
    if not (error := float(((given - y[256:]) ** 2).mean())) < 0.02:
        raise Wrong(f"Its mean squared error on new rows is {error:.2f}, and 0.02 is asked for.")
    return "The same lines train a larger model on a TPU."


def _check_shardings(answer: object) -> str:
    shapes = {(64, 3): (8, 3), (16, 64): (16, 8), (64, 64): (8, 64), (3, 5): (3, 5), (): ()}
    tree = {"layers": [np.zeros(shape, np.float32) for shape in shapes]}
    given = returned(answer(tree, AbstractMesh((8,), ("data",))))
    if jax.tree.structure(given) != jax.tree.structure(tree):
        raise Wrong("Return the same tree, with a NamedSharding in the place of each array.")
    for (shape, right), sharding in zip(shapes.items(), given["layers"], strict=True):
        if (held := sharding.shard_shape(shape)) != right:
            raise Wrong(f"Of an array of {shape} a device holds {right}, not {held}.")
    return "jax.device_put(tree, shardings(tree, mesh)) lays the arrays out."
