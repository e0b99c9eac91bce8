"""Is this model ready for a TPU? The checklist of the source documents, carried out.

Seven checks (`helpers.preflight.report.CHECKS`): some look at the Python objects, some run a few
real batches on this CPU, and some ask Google's TPU compiler (`helpers.xla.tpu_compiler`). Nothing
runs on a TPU, and the learner's variables hold afterwards what they held before.
"""

import concurrent.futures
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from helpers.base.errors import CourseError
from helpers.preflight.checks import answers, dataset, memory, pipeline, rules, strategy
from helpers.preflight.estimate import timing
from helpers.preflight.estimate.step import Estimate, Timing
from helpers.preflight.report import Item, Report, finding
from helpers.preflight.subject import Job, Subject, exported, is_factory, subject_of
from helpers.tpu import hardware
from helpers.xla import tpu_compiler
from helpers.xla.tracing import NotCompilable

SAMPLE_SECONDS = 20.0  # no further batch of the dataset is asked for after so long


def preflight(
    subject: Any,
    data: Any = None,
    target: str | Sequence[str] = "v5e-8",
    *,
    node: bool = False,
    largest_batch: bool = False,
    search_seconds: float = 300.0,
    profile: bool = False,
    batches: int = 64,
    progress: Callable[[str], None] | None = None,
) -> Report:
    """Go through the checklist.

    What Google's compiler said of a program is kept on disk. Everything else is done again by a
    second call, which takes about half as long: only that can tell whether the code, the model and
    the data are still the same.

    Args:
        subject: A function of tensors, a Keras model (tf-keras, Keras 3, any TF model of Hugging
            Face), or a factory: a function without arguments that returns a model, or a pair
            (model or function, data). A factory is called twice, the second time inside a
            strategy's scope, to see whether all is made there.
        data: A ``tf.data.Dataset`` of global batches, as ``fit`` takes it, each divided by the
            target's replicas. Or ``tf.TensorSpec``s (tensors, arrays), as a tuple of the function's
            arguments: what one replica gets. None where the factory gives it.
        target: A TPU by Google's name, such as ``v5e-8``; or several, to compare.
        node: Whether the TPU is another machine (a TPU Node), which can't call back and can't see
            this disk.
        largest_batch: Whether to search for the largest batch that fits: some three compiles more.
        search_seconds: For that search, on each target; what was found until then counts.
        profile: Whether to estimate a step's time, too, by operation, layer and line: one compile
            more for each target, with full effort, which takes longer.
        batches: How many batches of the dataset are looked at.
        progress: Called with one line when a step begins.

    Raises:
        CourseError: The subject is neither function nor model or was made under a strategy, there
            are no data, or there is no such target.
    """
    told: set[str] = set()

    def say(line: str) -> None:
        if progress is not None and line not in told:
            told.add(line)
            progress(line)

    targets = (target,) if isinstance(target, str) else tuple(target)
    slices = [(name, hardware.slice_of(name).replicas) for name in targets]
    scope = None
    with tpu_compiler.started():  # it needs some seconds, which tracing needs, too
        if data is None and is_factory(subject):
            say("making the model")
            subject, data, scope = strategy.made(subject)
        checked = subject_of(subject, _shown(subject, data))
        items, sample = [], None
        if isinstance(data, tf.data.Dataset):
            say("reading a sample of the dataset")
            sample = pipeline.sample(data, batches, SAMPLE_SECONDS)
        items += dataset.check(data, checked.structure, sample, slices, node)
        estimates: list[Estimate] = []
        timings: list[Timing] = []
        if sample is None or _has_batches(sample):
            search = search_seconds if largest_batch else None
            found, estimates, jobs = _ask(checked, sample, slices, search, say)
            if profile:
                timings = [t for job in jobs if (t := timing.estimate(job, say)) is not None]
            items += [*found, strategy.jit_compile(checked)]
            if checked.model is not None:
                items.append(scope or finding(5, "no_scope"))
    items.sort(key=lambda item: item.check)
    return Report(checked.name, targets, tuple(items), tuple(estimates), tuple(timings))


def _shown(subject: Any, data: Any) -> Any:
    """Take a ``tf.function``'s input signature where no data are given."""
    data = getattr(subject, "input_signature", None) if data is None else data
    if data is None:
        raise CourseError(
            "There are no data, so there are no shapes to compile for.",
            "XLA compiles for one set of shapes at a time.",
            "Hand in a dataset or TensorSpecs: preflight(model, dataset), or let the function that "
            "makes the model end with `return model, dataset`.",
        )
    return data


def _has_batches(sample: pipeline.Sample) -> bool:
    """Whether there is a batch to go on with; without one, the error that came is the finding."""
    if not sample.shapes and not sample.error:
        raise CourseError(
            "The dataset gave no batch.",
            "It is empty, or all its rows are fewer than one batch with drop_remainder=True.",
            "Look at it: next(iter(dataset)).",
        )
    return bool(sample.shapes)


def _ask(
    subject: Subject,
    sample: pipeline.Sample | None,
    slices: Sequence[tuple[str, int]],
    search: float | None,
    say: Callable[[str], None],
) -> tuple[list[Item], list[Estimate], list[Job]]:
    """Ask XLA on this CPU, then Google's compiler; the CPU runs real batches meanwhile.

    Gives what was found, what a step costs, and the jobs that compile and fit.
    """
    specs = subject.specs
    if sample is not None:
        shapes = zip(sample.largest, specs, strict=True)
        specs = tuple(tf.TensorSpec(shape, spec.dtype) for shape, spec in shapes)
    say("tracing, and asking XLA on this CPU")
    try:
        subject, jobs = exported(subject, specs, slices, divided=sample is not None)
    except NotCompilable as error:
        reason = "the step does not compile yet"
        later = memory.unanswered([target for target, _ in slices], reason)
        return [*rules.refused(subject, error), finding(4, "does_not_compile"), *later], [], []
    items = rules.check(subject, jobs[0].program)
    with concurrent.futures.ThreadPoolExecutor(max_workers=2) as pool:
        waiting = [pool.submit(memory.compile_for, job, say) for job in jobs]
        say("comparing eager and compiled results")
        items += answers.check(subject, jobs[0], sample)
        compiled = [future.result() for future in waiting]
    estimates = []
    for job, result in zip(jobs, compiled, strict=True):
        found, estimate = memory.check(job, result)
        items += found
        if search is not None and result.verdict in ("compiles", "out of memory"):
            item, rows = memory.largest_batch(subject, job, search, say)
            items.append(item)
            estimate = estimate and dataclasses.replace(estimate, largest_rows=rows)
        estimates += [estimate] if estimate is not None else []
    fitting = [job for job, result in zip(jobs, compiled, strict=True) if result.ok]
    return items, estimates, fitting
