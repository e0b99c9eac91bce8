"""The exercises of notebook 11: a masked mean, a model trained, arrays cut for eight devices."""

import contextlib
import sys
import types
from collections.abc import Iterator

import jax
import numpy as np
from jax.sharding import AbstractMesh

from helpers.exercises import Wrong, returned

MEANS = [([3, -100, 0, 7], 3.0), ([-100] * 4, 0.0)]


def _check_mean_loss(answer: object) -> str:
    losses = np.float32([1, 5, 2, 6])
    for labels, expected in MEANS:
        mean = returned(jax.jit(answer)(losses, np.array(labels)))
        if not abs(float(mean) - expected) < 1e-5:
            raise Wrong(f"For [1, 5, 2, 6] with {labels} it gives {mean:.4g}, not {expected:g}.")
    return "One program, for whichever positions count."


def _check_fit(answer: object) -> str:
    x = np.random.default_rng(0).uniform(-1, 1, (512, 2)).astype(np.float32)
    y = x[:, 0] * (1 + x[:, 1])  # no straight line fits it
    with _packages_called() as packages:
        function = returned(answer(x[:256], y[:256]))
    predictions = np.asarray(function(x[256:]))
    if predictions.shape != (256,):
        raise Wrong(
            f"The function gives {predictions.shape} for 256 rows: one number each, (256,)."
        )
    error = float(((predictions - y[256:]) ** 2).mean())
    if not error < 0.02:
        raise Wrong(f"Its mean squared error on new rows is {error:.2f}, and 0.02 is asked for.")
    # Least squares of NumPy may predict as well, but that is another exercise.
    for package, name in (("flax", "module of Flax NNX"), ("optax", "optimizer of Optax")):
        if package not in packages:
            raise Wrong(f"It predicts well, but no {name} took part.")
    return "The same lines train a larger model on a TPU."


@contextlib.contextmanager
def _packages_called() -> Iterator[set[str]]:
    """Collect the packages whose functions are called while a block runs."""
    packages: set[str] = set()

    def profile(frame: types.FrameType, event: str, argument: object) -> None:
        packages.add(frame.f_globals.get("__name__", "").partition(".")[0])

    profiler = sys.getprofile()
    sys.setprofile(profile)
    try:
        yield packages
    finally:
        sys.setprofile(profiler)


# The shape of an array, and of the part that each of eight devices holds of it.
PARTS = {(64, 3): (8, 3), (16, 64): (16, 8), (64, 64): (8, 64), (3, 5): (3, 5), (): ()}


def _check_shardings(answer: object) -> str:
    tree = {"layers": [np.zeros(shape, np.float32) for shape in PARTS]}
    shardings = returned(answer(tree, AbstractMesh((8,), ("data",))))
    if jax.tree.structure(shardings) != jax.tree.structure(tree):
        raise Wrong("Return the same tree, with a NamedSharding in the place of each array.")
    for (shape, expected), sharding in zip(PARTS.items(), shardings["layers"], strict=True):
        part = sharding.shard_shape(shape)
        if part != expected:
            raise Wrong(f"Of an array of {shape} a device holds {expected}, not {part}.")
    return "jax.device_put(tree, shardings(tree, mesh)) lays the arrays out."
