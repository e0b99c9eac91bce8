"""Check 4: does the compiled step give the same results as TensorFlow, on real batches?"""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tpu_preflight.context import Context
from tpu_preflight.program import NotCompilable, Tracing, messages, place_of, trace
from tpu_preflight.report import Item, finding
from tpu_preflight.subjects import execution, results
from tpu_preflight.subjects.operations import OPERATIONS, calls_of
from tpu_preflight.subjects.pipeline import Batch
from tpu_preflight.subjects.tensorflow_subject import rows_of

NUDGES = 8  # of the variables, to see what rounding decides
FEW_ROWS = 4  # of what is large, through the test step


def check(context: Context) -> list[Item]:
    """Run real batches, eager and compiled, and look for assertions that XLA drops.

    The variables hold afterwards what they held before. Without a sample (only shapes were given)
    there is nothing to run.
    """
    if context.refusal is not None:
        return [finding(4, "does_not_compile")]
    context.say("comparing eager and compiled results")
    job = context.jobs[0]
    dropped = _dropped_assertions(job.graph)
    sample = context.subject.sample
    if sample is None:
        return [finding(4, "no_batches"), *dropped]
    batches = sample.batches
    is_large = context.subject.takes_long(job.program)
    if is_large:
        batches = [_few_rows(batches[0])]
    # The first step that doesn't draw random numbers is compared.
    # A training step of a large model takes minutes on a CPU, its test step seconds.
    steps = {}
    is_trained = context.subject.kind == "train step"
    if not is_trained or not (is_large or _has(job.graph, "drawn")):
        steps[context.subject.kind] = context.subject.step
    if is_trained and context.subject.has_test_step:
        name = "test step (the train step draws random numbers)"
        if is_large:
            name = f"test step on {FEW_ROWS} rows (model or batch is large)"
        steps[name] = context.subject.test_step  # without dropout
    for name, step in steps.items():
        item = _compare(name, step, batches)
        if item is not None:
            return [item, *dropped]
    if is_large and not steps:
        return [finding(4, "no_test_step"), *dropped]
    return [finding(4, "draws"), *dropped]


def _few_rows(batch: Batch) -> Batch:
    rows = rows_of(tensor.shape for tensor in batch)
    tensors = []
    for tensor in batch:
        if tensor.shape.rank and len(tensor) == rows:
            tensor = tensor[:FEW_ROWS]
        tensors.append(tensor)
    return tuple(tensors)


def _has(graph: tf.Graph, purpose: str) -> bool:
    return bool(calls_of(graph, OPERATIONS[purpose]))


def _compare(what: str, step: Callable[..., Any], batches: Sequence[Batch]) -> Item | None:
    """Compare on real batches; None where the step draws random numbers."""
    try:
        traced = trace(step, *batches[0])
    except NotCompilable as error:
        reason = messages.shorten(f"{error.what} {error.why}")
        return finding(4, "not_comparable", step=what, said=reason, where=error.source)
    if _has(traced.graph, "drawn"):
        return None
    # Every batch begins with the same variables.
    for number, batch in enumerate(batches, 1):
        eager, repeated, compiled = _run_three_times(step, traced, batch)
        tolerance = execution.tolerance(traced.graph)
        if repeated is not None:
            # XLA may draw a seed's numbers by another algorithm, which is no fault.
            differs_itself = results.differing_names(eager, repeated, tolerance)
            if differs_itself or results.differing_names(eager, compiled, tolerance):
                return None
        difference = results.difference(eager, compiled, tolerance)
        if difference is not None:
            step_name = f"{what} on batch {number}"
            names = results.differing_names(eager, compiled, tolerance)
            if names and set(names) <= _decided_by_rounding(traced, batch, compiled, tolerance):
                return finding(4, "rounding_decides", step=step_name, names=", ".join(names[:2]))
            return finding(4, difference.key, step=step_name, **difference.words)
    word = "batch" if len(batches) == 1 else "batches"
    return finding(4, "same", step=what, count=len(batches), batches=word)


def _run_three_times(
    step: Callable[..., Any], traced: Tracing, batch: Batch
) -> tuple[results.Results, results.Results | None, results.Results]:
    """Run a step eagerly, once more where it draws the numbers of a seed, and compiled."""
    repeated = None
    with execution.preserved(traced.variables) as restore:
        eager = execution.run(step, batch, restore, eagerly=True)
        if _has(traced.graph, "seeded"):
            repeated = execution.run(step, batch, restore, eagerly=True)
        compiled = execution.run(traced.function, batch, restore, eagerly=False)
    return eager, repeated, compiled


def _decided_by_rounding(
    traced: Tracing, batch: Batch, compiled: results.Results, tolerance: float
) -> set[str]:
    """Name the results that become others where the variables change in their last digits.

    Such as the accuracy of equal rows whose scores are all zero, but for rounding.
    """
    names = set()
    with execution.preserved(traced.variables) as restore:
        for seed in range(NUDGES):
            execution.nudge(traced.variables, tolerance / 100, seed)
            nudged = execution.run(traced.function, batch, restore, eagerly=False)
            names.update(results.differing_names(compiled, nudged, tolerance))
    return names


def _dropped_assertions(graph: tf.Graph) -> list[Item]:
    """Warn of the assertions in a step, with the first line and how many more there are."""
    assertions = calls_of(graph, OPERATIONS["dropped"])
    if not assertions:
        return []
    places = []
    for operation in assertions:
        place = place_of(operation)
        if place and place not in places:
            places.append(place)
    if not places:
        return [finding(4, "dropped", more="; here a library's")]
    count = ""
    if len(places) > 1:
        count = f", and {len(places) - 1} more"
    return [finding(4, "dropped", more=count, where=places[0])]
