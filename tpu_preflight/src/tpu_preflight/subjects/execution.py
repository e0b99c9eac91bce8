"""Running a step of TensorFlow on this CPU, so that it leaves no trace in its variables."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tpu_preflight.program import Resource, graph_operations
from tpu_preflight.subjects.pipeline import Batch
from tpu_preflight.subjects.results import TOLERANCES, Results


@contextlib.contextmanager
def preserved(variables: Sequence[Resource]) -> Iterator[Callable[[], None]]:
    """Give a function that puts the variables' values back; it is called at the end as well."""
    values = [variable.read() for variable in variables]

    def restore() -> None:
        for variable, value in zip(variables, values, strict=True):
            tensor = tf.constant(value, variable.dtype)
            tf.raw_ops.AssignVariableOp(resource=variable.handle, value=tensor)

    try:
        yield restore
    finally:
        restore()


def run(
    step: Callable[..., Any], batch: Batch, restore: Callable[[], None], *, eagerly: bool
) -> Results:
    """Name the results of a step; an error that a real batch raises is a result as well.

    Args:
        step: Takes the tensors of a batch.
        batch: The tensors.
        restore: Puts the variables back, see `preserved`.
        eagerly: Whether to run what is in a ``tf.function`` operation by operation, too.
    """
    # A setting of the whole process: it is put back.
    runs_eagerly = tf.config.functions_run_eagerly()
    tf.config.run_functions_eagerly(eagerly)
    try:
        return _named(step(*batch))
    except Exception as error:
        return error
    finally:
        tf.config.run_functions_eagerly(runs_eagerly)
        restore()


def nudge(variables: Sequence[Resource], size: float, seed: int) -> None:
    """Change each number of the floating-point variables by a random share, at most ``size``.

    What changes much by that is decided by rounding.
    """
    generator = np.random.default_rng(seed)
    for variable in variables:
        if not variable.dtype.is_floating:
            continue
        value = variable.read().astype(float)
        value *= 1 + generator.uniform(-size, size, value.shape)
        tensor = tf.cast(tf.constant(value), variable.dtype)
        tf.raw_ops.AssignVariableOp(resource=variable.handle, value=tensor)


def _named(results: Any) -> dict[str, np.ndarray]:
    """Name the results, by a dictionary's keys or by their positions; of a nest the first."""
    if not isinstance(results, dict):
        leaves = tf.nest.flatten(results)
        if len(leaves) == 1:
            results = {"result": leaves[0]}
        else:
            results = {f"result {i}": leaf for i, leaf in enumerate(leaves)}
    arrays = {}
    for name, value in results.items():
        leaves = tf.nest.flatten(value)
        if leaves and leaves[0] is not None:
            arrays[str(name)] = np.asarray(leaves[0])
    return arrays


def tolerance(graph: tf.Graph) -> float:
    """Say how far rounding takes a graph's results, relative to them: by its lowest precision."""
    largest = TOLERANCES["float32"]
    for operation in graph_operations(graph).values():
        for output in operation.outputs:
            largest = max(largest, TOLERANCES.get(output.dtype.name, largest))
    return largest
