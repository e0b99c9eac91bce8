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
NEAR = 0.35  # a change this near to the number of replicas (or its square) was not divided by it
SHARE = 0.3  # of the variables that change; statistics of a batch change as they should


def check(subject: Subject, job: Job) -> list[Item]:
    """Take a step as a replica among others with the same rows, and one with all these rows.

    A sum of gradients over replicas must be divided by their number somewhere. Nothing is said
    where there is no batch, no variable changes, or the batch can't be shared out.
    """
    batch = subject.sample.batches[0] if subject.sample is not None else ()
    rows, replicas = rows_of(x.shape for x in batch), job.replicas
    if rows is None or replicas == 1 or rows % replicas or answers.is_large(subject, job):
        return []
    part = [x[: rows // replicas] if x.shape.rank else x for x in batch]
    whole = [tf.concat([x] * replicas, 0) if x.shape.rank else x for x in part]
    with contextlib.suppress(NotCompilable, tf.errors.OpError):
        shared = _changes(subject, part, replicas)
        times = {}
        for key, right in _changes(subject, whole, 1).items():
            ours = shared.get(key, 0 * right)
            along, size = np.vdot(ours, right), np.linalg.norm(right)
            if along > ALONG * size * np.linalg.norm(ours):
                times[key] = along / size**2
        powers = replicas, replicas**2
        wrong = [k for k, t in times.items() if any(NEAR < t / p < 1 / NEAR for p in powers)]
        if times and len(wrong) >= SHARE * len(times):
            # A weight, if one is among them: Adam divides by the gradients' size.
            held, name, _ = least = min(wrong, key=lambda key: (key[0], times[key]))
            about = {"replicas": replicas, "first": name, "times": times[least]}
            return [finding(5, "state_differs" if held else "update_differs", **about)]
        if times:
            return [finding(5, "update", replicas=replicas)]
    return []


def _changes(
    subject: Subject, batch: list[tf.Tensor], replicas: int
) -> dict[tuple[bool, str, int], np.ndarray]:
    """Run a step, and give how variables of floating-point numbers changed.

    Each is named by whether it is no weight, its name, and which it is.
    """
    traced = trace(subject.step, *batch, replicas=replicas, alike=True)
    held = [v for v in traced.variables if v.dtype.is_floating]
    weights = {id(v.handle) for v in traced.graph.trainable_variables}
    with answers.kept(traced.variables):
        before = [v.read().astype(float) for v in held]
        traced.function(*batch)
        return {
            (id(v.handle) not in weights, v.name, id(v.handle)): v.read() - old
            for v, old in zip(held, before, strict=True)
        }
