"""The exercises of notebook 11: a masked mean, a model trained, arrays cut for eight devices."""

import contextlib
import functools
import math
import sys
import types
from collections.abc import Callable, Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AbstractMesh, Mesh, NamedSharding, PartitionSpec

from helpers.exercises import Wrong, returned
from tpu_preflight import compiler
from tpu_preflight.chips import hardware
from tpu_preflight.compiler.execution import exchange
from tpu_preflight.program.instructions import computations

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
    # A loss that takes [rows, 1] from [rows] compares each prediction with all of y.
    error_of_mean = float(np.var(y))
    if error > 0.5 * error_of_mean:
        raise Wrong(
            f"Its mean squared error on new rows is {error:.2f}; that of the mean of y is "
            f"{error_of_mean:.2f}. Did the weights move, and are predictions and y both [rows] in "
            "the loss?"
        )
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


ROWS = PartitionSpec("chips")
COLUMNS = PartitionSpec(None, "chips")
WHOLE = PartitionSpec()
# Arrays of float32, so 8, 32, 16 and 32 MB; x @ w has the shape of d.
SHAPES = {"x": (1000, 2000), "w": (2000, 4000), "d": (1000, 4000), "v": (4000, 2000)}


class Layout(NamedTuple):
    """What eight chips compute, and which part of each array a chip has."""

    compute: Callable
    arguments: dict[str, PartitionSpec]
    result: PartitionSpec
    thought: str  # for whoever names another collective


class Sent(NamedTuple):
    """What the chips send each other in one layout."""

    collective: str
    size: float  # of the array that travels, in MB
    megabytes: float  # that each chip sends
    microseconds: float


def _layouts(mesh: Mesh) -> dict[int, Layout]:
    """The ten of the exercise, by their numbers in the notebook."""

    def product(a: jax.Array, b: jax.Array) -> jax.Array:
        return a @ b

    def gradient(x: jax.Array, d: jax.Array) -> jax.Array:
        return x.T @ d

    def scattered(x: jax.Array, d: jax.Array) -> jax.Array:
        return jax.lax.psum_scatter(x.T @ d, "chips", tiled=True)

    def moved(x: jax.Array) -> jax.Array:
        return x

    def two_products(x: jax.Array, w: jax.Array, v: jax.Array) -> jax.Array:
        return jax.nn.relu(x @ w) @ v

    in_slices = jax.shard_map(scattered, mesh=mesh, in_specs=(ROWS, ROWS), out_specs=ROWS)
    adds_up = "The sum runs along the axis that is cut, so each chip has a part of every sum."
    return {
        1: Layout(
            product, {"x": ROWS, "w": WHOLE}, ROWS, "Which rows of y can a chip compute by itself?"
        ),
        2: Layout(
            product, {"x": WHOLE, "w": COLUMNS}, COLUMNS, "Which columns of y does a chip compute?"
        ),
        3: Layout(
            product, {"x": WHOLE, "w": COLUMNS}, WHOLE, "Each chip has columns of y and needs all."
        ),
        4: Layout(product, {"x": COLUMNS, "w": ROWS}, WHOLE, adds_up),
        5: Layout(
            product, {"x": ROWS, "w": ROWS}, ROWS, "What does a chip lack to compute its rows of y?"
        ),
        6: Layout(
            product,
            {"x": ROWS, "w": COLUMNS},
            COLUMNS,
            "What does a chip lack to compute its columns of y?",
        ),
        7: Layout(gradient, {"x": ROWS, "d": ROWS}, WHOLE, adds_up),
        8: Layout(
            in_slices,
            {"x": ROWS, "d": ROWS},
            ROWS,
            "The axis that is summed is cut, and each chip keeps its rows of the sums.",
        ),
        9: Layout(moved, {"x": ROWS}, COLUMNS, "Each chip gives a part of its rows to each other."),
        10: Layout(
            two_products,
            {"x": WHOLE, "w": COLUMNS, "v": ROWS},
            WHOLE,
            "Columns of x @ w are what the second product adds up.",
        ),
    }


@functools.cache
def _compiled_layouts() -> dict[int, tuple[Layout, Sent]]:
    """Compile the ten layouts for eight devices of this CPU, and read what their programs send."""
    devices = jax.devices("cpu")[:8]
    mesh = Mesh(np.array(devices), ("chips",))
    target = hardware.slice_of("v5e-8", jax=True)
    rows = {}
    for number, layout in _layouts(mesh).items():
        arguments = []
        for name, spec in layout.arguments.items():
            sharding = NamedSharding(mesh, spec)
            arguments.append(jax.ShapeDtypeStruct(SHAPES[name], jnp.float32, sharding=sharding))
        step = jax.jit(layout.compute, out_shardings=NamedSharding(mesh, layout.result))
        module, main = computations(step.lower(*arguments).compile().as_text())
        sent = Sent("none", 0.0, 0.0, 0.0)
        for instruction in module[main]:
            traffic = exchange(instruction, module, cores=1)
            if traffic is not None:
                _, seconds = compiler.link_seconds(target, traffic.sent)
                size = traffic.bytes / 1e6
                sent = Sent(traffic.kind, size, traffic.sent / 1e6, 1e6 * seconds)
        rows[number] = layout, sent
    return rows


def _check_on_paper(answer: object) -> str:
    rows = returned(answer())
    count = len(jax.devices("cpu"))
    if count < 8:
        raise Wrong(
            f"The check compiles for eight devices, and JAX has {count}. Set DEVICES = 8, restart "
            "the kernel and run all cells above."
        )
    expected = _compiled_layouts()
    if not isinstance(rows, dict) or set(rows) != set(expected):
        raise Wrong("Return a dictionary with the keys 1 to 10.")
    for number, (layout, sent) in expected.items():
        _check_row(number, rows[number], layout, sent)
    return "The programs that the compiler wrote for eight devices send the same."


def _check_row(number: int, row: object, layout: Layout, sent: Sent) -> None:
    """Compare an answer on one layout; `Wrong` says what to think about."""
    try:
        collective, megabytes, microseconds = row
        megabytes = float(megabytes)
        microseconds = float(microseconds)
    except (TypeError, ValueError):
        raise Wrong(
            f'{number}: give three things, such as ("all-gather", 7, 70), not {row!r}.'
        ) from None
    if str(collective).lower() != sent.collective:
        raise Wrong(f"{number}: it is not {collective}. {layout.thought}")
    if not _close(megabytes, sent.megabytes):
        thought = "Which array travels, and how many MB are that?"
        if _close(2 * megabytes, sent.megabytes):
            thought = "Its parts travel to be added up, and then the sums travel."
        elif _close(megabytes, sent.size) or _close(megabytes, 2 * sent.size):
            thought = "Of each array a chip keeps its own part: 7/8 of it travels."
        elif _close(megabytes, 8 * sent.megabytes):
            thought = "That is what all chips send together."
        raise Wrong(f"{number}: a chip does not send {megabytes:g} MB. {thought}")
    if not _close(microseconds, sent.microseconds):
        raise Wrong(
            f"{number}: {megabytes:g} MB do not take {microseconds:g} µs. At 100 GB/s "
            "one MB takes 10."
        )


def _close(number: float, expected: float) -> bool:
    return math.isclose(number, expected, rel_tol=0.01)


# The shape of an array, and of the part that each of eight devices holds of it.
PARTS = {(64, 3): (8, 3), (16, 64): (16, 8), (64, 64): (8, 64), (3, 5): (3, 5), (): ()}
# The longest axis has a remainder, the other one has not.
PARTS |= {(16, 70): (2, 70), (70, 16): (70, 2)}
PARTS_OF_FOUR = {(4, 6): (1, 6), (12, 8): (3, 8), (6, 10): (6, 10)}


def _check_shardings(answer: object) -> str:
    _check_parts(answer, 8, PARTS)
    _check_parts(answer, 4, PARTS_OF_FOUR)
    return "jax.device_put(tree, shardings(tree, mesh)) lays the arrays out."


def _check_parts(answer: object, devices: int, parts: dict[tuple, tuple]) -> None:
    tree = {"layers": [np.zeros(shape, np.float32) for shape in parts]}
    shardings = returned(answer(tree, AbstractMesh((devices,), ("data",))))
    if jax.tree.structure(shardings) != jax.tree.structure(tree):
        raise Wrong("Return the same tree, with a NamedSharding in the place of each array.")
    for (shape, expected), sharding in zip(parts.items(), shardings["layers"], strict=True):
        part = sharding.shard_shape(shape)
        if part != expected:
            raise Wrong(
                f"Of an array of {shape}, one of {devices} devices holds {expected}, not {part}."
            )
