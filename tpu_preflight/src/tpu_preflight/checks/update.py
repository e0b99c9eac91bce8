"""Check 5, by numbers: is a step's update on all replicas that of one device with the same rows?"""

import contextlib

import numpy as np
import tensorflow as tf

from tpu_preflight.checks import answers
from tpu_preflight.checks.subject import Subject, rows_of
from tpu_preflight.program import NotCompilable, trace
from tpu_preflight.program.job import Job
from tpu_preflight.report import Item, finding

ALONG = 0.5  # cosine from which two changes of a variable have one direction
MORE = 1.1  # times as large: rounding explains less
LESS = 0.75  # times as large: random numbers of a step make its changes seem a fifth smaller
SHARE = 0.3  # of the variables that change; statistics of a batch change as they should
RUNS = 8  # of a step that draws random numbers: the mean of so many is steady

Key = tuple[bool, str, int]  # of a variable: whether it is no weight, its name, which it is
Changes = dict[Key, np.ndarray]


def check(subject: Subject, job: Job) -> list[Item]:
    """Take a step as a replica among others with the same rows, and one with all these rows.

    A sum of gradients over replicas must be divided by their number somewhere, and once. Another
    factor may be right: a loss that compares rows with each other (SimCLR) has fewer of them in a
    replica, so one device with a replica's rows will do, too. An optimizer that divides by the
    gradients' size (Adam) hides a second division, which then does no harm. Nothing is said where
    there is no batch, no variable changes, or the batch can't be shared out.
    """
    batch = subject.sample.batches[0] if subject.sample is not None else ()
    rows, replicas = rows_of(x.shape for x in batch), job.replicas
    if rows is None or replicas == 1 or rows % replicas or answers.is_large(subject, job):
        return []
    part = [x[: rows // replicas] if x.shape.rank else x for x in batch]
    whole = [tf.concat([x] * replicas, 0) if x.shape.rank else x for x in part]
    with contextlib.suppress(NotCompilable, tf.errors.OpError):
        for runs in (1, RUNS):  # what looks wrong once is looked at again
            shared = _changes(subject, part, replicas, runs)
            times = _times(shared, _changes(subject, whole, 1, runs))
            # A loss that compares rows knows no others than these.
            own = _times(shared, _changes(subject, part, 1, runs) if runs > 1 else {})
            wrong = [
                key
                for key, factor in times.items()
                if min(factor, own.get(key, factor)) > MORE or LESS < factor * replicas < MORE
            ]
            if len(wrong) <= SHARE * len(times):
                return [finding(5, "update", replicas=replicas)] if times else []
        # A weight, if one is among them: Adam divides by the gradients' size.
        first = min(wrong, key=lambda key: (key[0], times[key]))
        larger = "state_differs" if first[0] else "update_differs"
        return [
            finding(
                5,
                larger if times[first] > 1 else "update_smaller",
                replicas=replicas,
                first=first[1],
                times=times[first],
            )
        ]
    return []


def _times(shared: Changes, alone: Changes) -> dict[Key, float]:
    """Say how many times as much variables change on all replicas as on one device.

    Of what is no weight only what changes more: a metric counts the rows of its replica.
    """
    times = {}
    for key, right in alone.items():
        ours = shared.get(key, 0 * right)
        along, square = np.vdot(ours, right), np.vdot(right, right)
        if along > ALONG * (square * np.vdot(ours, ours)) ** 0.5 and (
            along > square / MORE or not key[0]
        ):
            times[key] = along / square
    return times


def _changes(subject: Subject, batch: list[tf.Tensor], replicas: int, runs: int) -> Changes:
    """Run a step some times, and give how variables of floating-point numbers changed in sum."""
    traced = trace(subject.step, *batch, replicas=replicas, alike=True)
    held = [v for v in traced.variables if v.dtype.is_floating]
    weights = {id(v.handle) for v in traced.graph.trainable_variables}
    keys = [(id(v.handle) not in weights, v.name, id(v.handle)) for v in held]
    changes = dict.fromkeys(keys, 0.0)
    with answers.kept(traced.variables), answers.kept(held) as restore:
        before = [v.read().astype(float) for v in held]
        for _ in range(runs):  # each from the same weights, with other random numbers
            traced.function(*batch)
            for key, variable, old in zip(keys, held, before, strict=True):
                changes[key] = changes[key] + variable.read() - old
            restore()
    return changes
