"""Check 5, by numbers: is a step's update on all replicas that of one device with the same rows?"""

import contextlib
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from tpu_preflight.context import Context
from tpu_preflight.program import NotCompilable, Tracing
from tpu_preflight.report import Item, finding
from tpu_preflight.subjects import execution
from tpu_preflight.subjects.tensorflow_subject import rows_of

# Of the variables: a bias ahead of batch norm, one in four, has no gradient but rounding.
SHARE = 0.3
# Of a change: Adam's epsilon hides a factor of eight only nearly.
NEGLIGIBLE = 0.01
# Of a change, by a nudge of some hundredths of a thousandth: a steady one changes by as little.
UNSTEADY = 0.1
STEPS = 16  # until weights change: gradients may be gathered, a rate may warm up

Key = tuple[bool, str, int]  # of a variable: whether it is no weight, its name, which it is
Changes = dict[Key, np.ndarray]


def check(context: Context) -> list[Item]:
    """Take a step as a replica among others with the same rows, and one with all these rows.

    All rows draw the same random numbers, so a mean over the replica is the mean over all, and both
    changes are equal, to rounding. A sum of gradients that is divided never, or twice, makes one a
    multiple of the other. What is neither compares rows with each other (SimCLR: a replica has
    fewer of them), or its optimizer divides by the gradients' size (Adam, which hides a factor, and
    then it does no harm): it counts as what its size is nearer to. Nothing is said where there is
    no batch, no variable changes, or the batch can't be shared out.
    """
    subject = context.subject
    if context.refusal is not None or context.traced_under_run is None or subject.sample is None:
        return []
    job = context.jobs[0]
    replicas = job.replicas
    batch = subject.sample.batches[0]
    rows = rows_of(tensor.shape for tensor in batch)
    if rows is None or replicas == 1 or rows % replicas or subject.takes_long(job.program):
        return []
    shared = []  # what one replica gets
    repeated = []  # the same rows, as often as there are replicas
    for tensor in batch:
        if tensor.shape.rank:
            part = tensor[: rows // replicas]
            shared.append(part)
            repeated.append(tf.concat([part] * replicas, 0))
        else:
            shared.append(tensor)
            repeated.append(tensor)
    # What adds up in another order differs by that much.
    tolerance = execution.tolerance(job.graph)
    is_compiled = False

    def changes(batch: list[tf.Tensor], replicas: int, nudge: float = 0.0) -> Changes:
        traced = subject.trace(*batch, replicas=replicas, alike=True)
        return _changes(traced, batch, is_compiled, nudge)

    with contextlib.suppress(NotCompilable):
        try:
            return _findings(changes, shared, repeated, replicas, tolerance)
        except tf.errors.OpError:
            is_compiled = True  # XLA's compiler takes longer, but has a kernel for all
        with contextlib.suppress(tf.errors.OpError):
            return _findings(changes, shared, repeated, replicas, tolerance)
    return []


def _findings(
    changes: Callable[..., Changes],
    shared: list[tf.Tensor],
    repeated: list[tf.Tensor],
    replicas: int,
    tolerance: float,
) -> list[Item]:
    """Compare what a step changes of the variables, on all replicas and on one device."""
    on_replicas = changes(shared, replicas)
    alone = changes(repeated, 1)
    factors, faults = _compared(on_replicas, alone, replicas, tolerance)
    if faults:  # a loss that compares rows knows no others than these
        _, unlike = _compared(on_replicas, changes(shared, 1), replicas, tolerance)
        faults = [key for key in faults if key in unlike or factors[key] < 1]
    if faults:
        nudged = changes(repeated, 1, nudge=tolerance / 100)
        faults = [key for key in faults if not _is_rounding(alone[key], nudged[key])]
    return _report(factors, faults, replicas)


def _is_rounding(change: np.ndarray, nudged: np.ndarray) -> bool:
    """Say whether rounding makes a change: it is another where the variables hardly differ.

    Adam makes as much of a gradient of zero, but for rounding, as of a large one.
    """
    return bool(np.linalg.norm(nudged - change) > UNSTEADY * np.linalg.norm(change))


def _changes(
    traced: Tracing, batch: list[tf.Tensor], is_compiled: bool, nudge: float = 0.0
) -> Changes:
    """Run a step until weights change, and give how variables of floating-point numbers did.

    With a nudge the variables begin with values that are other by such a share.
    """
    step = traced.function
    if is_compiled:
        step = tf.function(traced.concrete, jit_compile=True)
    weights = {id(variable.handle) for variable in traced.graph.trainable_variables}
    variables = [variable for variable in traced.variables if variable.dtype.is_floating]
    changes: Changes = {}
    with execution.preserved(traced.variables):
        if nudge:
            execution.nudge(traced.variables, nudge, seed=0)
        initial = [variable.read().astype(float) for variable in variables]
        for _ in range(STEPS):
            step(*batch)
            for variable, value in zip(variables, initial, strict=True):
                handle = id(variable.handle)
                key = (handle not in weights, variable.name, handle)
                changes[key] = variable.read() - value
            if any(change.any() for (is_state, *_), change in changes.items() if not is_state):
                break
    return changes


def _compared(
    on_replicas: Changes, alone: Changes, replicas: int, tolerance: float
) -> tuple[dict[Key, float], list[Key]]:
    """Say how many times as much variables change on all replicas, and of which that is wrong.

    Of what is no weight only what changes more: a metric counts the rows of its replica.
    """
    factors = {}
    faults = []
    sizes = [np.linalg.norm(change) for (is_state, *_), change in alone.items() if not is_state]
    # What is smaller is rounding, as ahead of a batch norm of equal rows.
    smallest_size = tolerance * max(sizes, default=0)
    for key, expected in alone.items():
        change = on_replicas.get(key, 0 * expected)
        size = np.linalg.norm(change)
        expected_size = np.linalg.norm(expected)
        # A metric, a moving average: no weight.
        is_state = key[0]
        if not size or not expected_size or (is_state and size < expected_size):
            continue
        if not is_state and expected_size < smallest_size and size < smallest_size:
            continue
        factor = size / expected_size
        factors[key] = factor
        if np.linalg.norm(change - expected) <= tolerance * expected_size:
            continue
        # By a wrong factor alone; or so far off that the factor must be wrong.
        is_multiple = np.linalg.norm(change - factor * expected) <= tolerance * size
        is_multiple = is_multiple and abs(factor - 1) > NEGLIGIBLE
        is_near = 1 / replicas < factor**2 < replicas
        if is_multiple or not is_near:
            faults.append(key)
    return factors, faults


def _report(factors: dict[Key, float], faults: list[Key], replicas: int) -> list[Item]:
    """Report the variable in the middle of those that are wrong, if they are more than a few."""
    for is_state, larger in ((False, "update_differs"), (True, "state_differs")):
        keys = [key for key in faults if key[0] == is_state]
        keys.sort(key=lambda key: factors[key])
        count = sum(key[0] == is_state for key in factors)
        if len(keys) > SHARE * count:
            key = keys[(len(keys) - 1) // 2]
            what = larger if factors[key] > 1 else "update_smaller"
            words = {"replicas": replicas, "first": key[1], "times": factors[key]}
            return [finding(5, what, **words)]
    if not factors:
        return []
    return [finding(5, "update", replicas=replicas)]
