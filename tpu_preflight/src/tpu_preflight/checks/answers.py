"""Check 4: does the compiled step give the same answers as TensorFlow, on real batches?"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tpu_preflight.checks import differences, pipeline
from tpu_preflight.checks.subject import Subject, rows_of
from tpu_preflight.program import (
    NotCompilable,
    Resource,
    graph_operations,
    messages,
    place_of,
    trace,
)
from tpu_preflight.program.job import Job
from tpu_preflight.report import Item, finding

# Batches are compared on a CPU. With so many bytes of variables (30 million parameters with the two
# slots of Adam), or values in one tensor of a batch (of images), a whole training step takes long
# there: then a few rows go through the test step.
MUCH_HELD = 360_000_000
MANY_VALUES = 1_000_000
FEW_ROWS = 4


def check(subject: Subject, job: Job) -> list[Item]:
    """Run real batches, eager and compiled, and look for assertions that XLA drops.

    The variables hold afterwards what they held before. Without a sample (only shapes were given)
    there is nothing to run.
    """
    dropped = _dropped(job.graph)
    if subject.sample is None:
        return [finding(4, "no_batches"), *dropped]
    batches, large = subject.sample.batches, is_large(subject, job)
    if large:
        rows = rows_of(x.shape for x in batches[0])
        few = (x[:FEW_ROWS] if x.shape.rank and len(x) == rows else x for x in batches[0])
        batches = [tuple(few)]
    # The first step that doesn't draw random numbers is compared.
    found = (_compare(what, step, batches) for what, step in _steps(subject, job, large))
    item = next((item for item in found if item is not None), finding(4, "draws"))
    return [item, *dropped]


def is_large(subject: Subject, job: Job) -> bool:
    """Say whether a training step of the model takes long on a CPU."""
    values = max(int(np.prod(shape)) for shape in subject.sample.largest)
    held = sum(given.bytes for given in job.program.parameters if given.kind == "variable")
    return subject.model is not None and (held > MUCH_HELD or values > MANY_VALUES)


def _steps(subject: Subject, job: Job, large: bool) -> Iterator[tuple[str, Callable[..., Any]]]:
    trains = subject.kind == "train step"
    if not (trains and (large or _draws(job.graph))):
        yield subject.kind, subject.step
    if trains:
        why = "(the train step draws random numbers)"
        if large:
            why = f"on {FEW_ROWS} rows (model or batch is large)"
        yield f"test step {why}", subject.flat(subject.model.test_step)  # without dropout


def _draws(graph: tf.Graph, how: str = "drawn") -> bool:
    return bool(pipeline.leading_to(graph, pipeline.OPERATIONS[how]))


def _compare(what: str, step: Callable, batches: Sequence[pipeline.Batch]) -> Item | None:
    """Compare on real batches; None where the step draws random numbers."""
    try:
        traced = trace(step, *batches[0])
    except NotCompilable as error:
        said = messages.shortened(f"{error.what} {error.why}")
        return finding(4, "not_comparable", step=what, said=said, where=error.source)
    if _draws(traced.graph):
        return None
    seeded = _draws(traced.graph, "seeded")
    relative = rounding(traced.graph)
    with kept(traced.variables) as restore:
        for number, batch in enumerate(batches, 1):
            eager = _run(step, batch, restore, eagerly=True)
            again = _run(step, batch, restore, eagerly=True) if seeded else eager
            compiled = _run(traced.function, batch, restore, eagerly=False)
            if seeded and any(differences.differ(eager, x, relative) for x in (again, compiled)):
                return None
            if item := differences.difference(
                f"{what} on batch {number}", eager, compiled, relative
            ):
                return item
    count = len(batches)
    return finding(4, "same", step=what, count=count, batches="batch" if count == 1 else "batches")


def rounding(graph: tf.Graph) -> float:
    """Say how far rounding takes a result of a graph, relative to it: by its lowest precision."""
    return max(
        differences.RELATIVE.get(output.dtype.name, differences.RELATIVE["float32"])
        for operation in graph_operations(graph).values()
        for output in operation.outputs
    )


@contextlib.contextmanager
def kept(variables: Sequence[Resource]) -> Iterator[Callable[[], None]]:
    """Give a function that puts the variables' values back; it is called at the end, too."""
    values = [v.read() for v in variables]

    def restore() -> None:
        for variable, value in zip(variables, values, strict=True):
            value = tf.constant(value, variable.dtype)
            tf.raw_ops.AssignVariableOp(resource=variable.handle, value=value)

    try:
        yield restore
    finally:
        restore()


def _run(
    step: Callable, batch: pipeline.Batch, restore: Callable[[], None], *, eagerly: bool
) -> differences.Results:
    """Name the results of a step; an error that a real batch raises is a result, too.

    ``eagerly`` runs what stands in ``tf.function`` operation by operation, too.
    """
    before = tf.config.functions_run_eagerly()
    tf.config.run_functions_eagerly(eagerly)
    try:
        nest = step(*batch)
        if not isinstance(nest, dict):
            flat = tf.nest.flatten(nest)
            nest = {f"result {i}" if len(flat) > 1 else "result": x for i, x in enumerate(flat)}
        return {
            str(name): np.asarray(x)
            for name, value in nest.items()
            for x in tf.nest.flatten(value)[:1]
            if x is not None
        }
    except Exception as error:
        return error
    finally:
        tf.config.run_functions_eagerly(before)
        restore()


def _dropped(graph: tf.Graph) -> list[Item]:
    if not (found := pipeline.leading_to(graph, pipeline.OPERATIONS["dropped"])):
        return []
    places = list(dict.fromkeys(place for op in found if (place := place_of(op))))
    more = "" if places else "; here a library's"
    more += f", and {len(places) - 1} more" if len(places) > 1 else ""
    return [finding(4, "dropped", more=more, where=places[0] if places else None)]
