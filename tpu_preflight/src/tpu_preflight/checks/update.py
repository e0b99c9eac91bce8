"""Check 5, by numbers: is a step's update on all replicas that of one device with the same rows?"""

import contextlib

import numpy as np
import tensorflow as tf

from tpu_preflight.checks import answers
from tpu_preflight.checks.subject import Subject, rows_of
from tpu_preflight.program import NotCompilable, trace
from tpu_preflight.program.job import Job
from tpu_preflight.report import Item, finding

# Of the variables: a bias ahead of batch norm, one in four, has no gradient but rounding.
SHARE = 0.3
STEPS = 16  # until weights change: gradients may be gathered, a rate may warm up

Key = tuple[bool, str, int]  # of a variable: whether it is no weight, its name, which it is
Changes = dict[Key, np.ndarray]


def check(subject: Subject, job: Job) -> list[Item]:
    """Take a step as a replica among others with the same rows, and one with all these rows.

    All rows draw the same random numbers, so a mean over the replica is the mean over all, and both
    changes are equal, to rounding. A sum of gradients that is divided never, or twice, makes one a
    multiple of the other. What is neither compares rows with each other (SimCLR: a replica has
    fewer of them), or its optimizer divides by the gradients' size (Adam, which hides a factor, and
    then it does no harm): it counts as what its size is nearer to. Nothing is said where there is
    no batch, no variable changes, or the batch can't be shared out.
    """
    batch = subject.sample.batches[0] if subject.sample is not None else ()
    rows, replicas = rows_of(x.shape for x in batch), job.replicas
    if rows is None or replicas == 1 or rows % replicas or answers.is_large(subject, job):
        return []
    part = [x[: rows // replicas] if x.shape.rank else x for x in batch]
    whole = [tf.concat([x] * replicas, 0) if x.shape.rank else x for x in part]
    about = replicas, answers.rounding(job.graph)
    with contextlib.suppress(NotCompilable):
        for compiled in (False, True):  # XLA's compiler takes longer, but has a kernel for all
            with contextlib.suppress(tf.errors.OpError):
                shared = _changes(subject, part, replicas, compiled)
                times, wrong = _compared(shared, _changes(subject, whole, 1, compiled), *about)
                if wrong:  # a loss that compares rows knows no others than these
                    _, unlike = _compared(shared, _changes(subject, part, 1, compiled), *about)
                    wrong = [key for key in wrong if key in unlike or times[key] < 1]
                return _said(times, wrong, replicas)
    return []


def _said(times: dict[Key, float], wrong: list[Key], replicas: int) -> list[Item]:
    for is_state, larger in ((False, "update_differs"), (True, "state_differs")):
        found = sorted((key for key in wrong if key[0] == is_state), key=times.__getitem__)
        if len(found) > SHARE * sum(key[0] == is_state for key in times):
            first = found[(len(found) - 1) // 2]
            what = larger if times[first] > 1 else "update_smaller"
            return [finding(5, what, replicas=replicas, first=first[1], times=times[first])]
    return [finding(5, "update", replicas=replicas)] if times else []


def _compared(
    shared: Changes, alone: Changes, replicas: int, relative: float
) -> tuple[dict[Key, float], list[Key]]:
    """Say how many times as much variables change on all replicas, and of which that is wrong.

    Of what is no weight only what changes more: a metric counts the rows of its replica.
    """
    times, wrong = {}, []
    for key, right in alone.items():
        ours = shared.get(key, 0 * right)
        size, due = np.linalg.norm(ours), np.linalg.norm(right)
        if not size or not due or (key[0] and size < due):
            continue
        times[key] = size / due
        multiple = np.linalg.norm(ours - times[key] * right) <= relative * size
        near = 1 / replicas < times[key] ** 2 < replicas
        if np.linalg.norm(ours - right) > relative * due and (multiple or not near):
            wrong.append(key)
    return times, wrong


def _changes(subject: Subject, batch: list[tf.Tensor], replicas: int, compiled: bool) -> Changes:
    """Run a step until weights change, and give how variables of floating-point numbers did."""
    traced = trace(subject.step, *batch, replicas=replicas, alike=True)
    step = tf.function(traced.concrete, jit_compile=True) if compiled else traced.function
    held = [v for v in traced.variables if v.dtype.is_floating]
    weights = {id(v.handle) for v in traced.graph.trainable_variables}
    keys = [(id(v.handle) not in weights, v.name, id(v.handle)) for v in held]
    with answers.kept(traced.variables):
        before = [v.read().astype(float) for v in held]
        for _ in range(STEPS):
            step(*batch)
            changes = [v.read() - old for v, old in zip(held, before, strict=True)]
            if any(change.any() for key, change in zip(keys, changes, strict=True) if not key[0]):
                break
    return dict(zip(keys, changes, strict=True))
