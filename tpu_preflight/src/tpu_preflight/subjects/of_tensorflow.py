"""TensorFlow: a function of tensors, or a Keras model on TensorFlow."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tpu_preflight.checks import (
    answers,
    dataset,
    input,
    numerics,
    pipeline,
    placement,
    rules,
    strategy,
    variables,
)
from tpu_preflight.checks.subject import Specs, exported, program_of, subject_of, with_rows
from tpu_preflight.errors import PreflightError
from tpu_preflight.estimate.input import Rate
from tpu_preflight.estimate.step import Estimate, Timing
from tpu_preflight.program import NotCompilable, Program, Tracing
from tpu_preflight.program.job import Job
from tpu_preflight.report import Item, finding
from tpu_preflight.subjects.kind import Kind, Say, Slices

SAMPLE_SECONDS = 20.0  # no further batch of the dataset is asked for after so long


class OfTensorFlow(Kind):
    """A function of tensors or a Keras model, with a dataset or with shapes alone.

    Args:
        given: What the learner handed in, or what their factory made.
        data: Its data; None where a ``tf.function``'s signature tells the shapes.
        factory: What made it, where there is one; called once more, inside a strategy's scope.

    Raises:
        PreflightError: It is neither function nor model or was made under a strategy, or there are
            no data.
    """

    def __init__(self, given: Any, data: Any, factory: Callable[[], Any] | None) -> None:
        self._factory = factory
        self._data = _shown(given, data)
        self._subject = subject_of(given, self._data)
        self._sample: pipeline.Sample | None = None
        self._specs: Specs = ()
        self._refused = ""
        self.name = self._subject.name

    def data(self, batches: int, slices: Slices, node: bool, say: Say) -> list[Item]:
        """Read a sample of the dataset, where there is one: checks 2 and 3."""
        if isinstance(self._data, tf.data.Dataset):
            say("reading a sample of the dataset")
            self._sample = pipeline.sample(self._data, batches, SAMPLE_SECONDS)
        found = dataset.check(self._data, self._subject.structure, self._sample, slices, node)
        self.can_go_on = self._sample is None or _has_batches(self._sample)
        return found

    def jobs(self, slices: Slices) -> list[Job]:
        """Trace, and let TensorFlow write XLA's program for each target."""
        specs = self._subject.specs
        if self._sample is not None:
            shapes = zip(self._sample.largest, specs, strict=True)
            specs = tuple(tf.TensorSpec(shape, spec.dtype) for shape, spec in shapes)
        self._specs = specs
        variables.check(self._subject.given, slices)
        self._subject, jobs = exported(self._subject, specs, slices, self.trace_seconds)
        self._specs = jobs[0].specs
        return jobs

    def refused(self, error: NotCompilable) -> list[Item]:
        """Say which operation, on which line; ask the TPU bridge where XLA lacks a kernel."""
        self._refused = error.reason or "refused"
        lacking = error.reason == "no kernel"
        return rules.refused(self._subject, error, self._placed if lacking else None)

    def rules(self, job: Job) -> list[Item]:
        """Warn of sizes that depend on values."""
        return rules.check(self._subject, job.program)

    def answers(self, job: Job) -> list[Item]:
        """Run real batches, eager and compiled."""
        return answers.check(self._subject, job, self._sample)

    def way(self) -> list[Item]:
        """Look for settings, at the strategy's scope, and at the step under its ``run``."""
        items = [strategy.jit_compile(self._subject)]
        if self._subject.model is not None:
            items += strategy.eagerly(self._subject.model)
        if self._refused == "memory":  # no second one, then
            return items
        if self._scope is not None:
            items += [self._scope.item] if self._scope.item is not None else []
        elif self._subject.model is not None:
            items.append(finding(5, "no_scope"))
        if self._refused in ("", "no kernel"):  # else it can't be traced in a scope either
            items += self._under_strategy[0]
        if not self._refused and self._placed is not None:
            items += placement.check(self._subject.kind, self._placed)
        return items

    def numbers(self, say: Say) -> list[Item]:
        """Run the step with a TPU's products, too: check 8."""
        return numerics.check(self._subject, self._sample, say)

    def rate(
        self, estimates: Sequence[Estimate], timings: Sequence[Timing], node: bool, say: Say
    ) -> tuple[list[Item], Rate | None]:
        """Time the dataset, stage by stage: check 9."""
        return input.check(self._data, estimates, timings, node, say)

    @functools.cached_property
    def _scope(self) -> strategy.Scope | None:
        """What the factory makes inside a strategy's scope; None without a factory."""
        if self._factory is None:
            return None
        return strategy.made_again(self._factory, self._subject.given)

    @functools.cached_property
    def _under_strategy(self) -> tuple[list[Item], Tracing | None]:
        """Trace the step as ``TPUStrategy.run`` does, and say what was seen."""
        subject, scope = self._subject, self._scope
        if scope is not None and scope.made is not None:
            subject = subject.of(scope.made)
        return strategy.run(subject, self._specs, scope, self.trace_seconds)

    @functools.cached_property
    def _placed(self) -> placement.Placement | None:
        """What TensorFlow's TPU bridge says; None where there is nothing to ask about."""
        traced = self._under_strategy[1]
        return None if traced is None else placement.ask(traced)

    def program(self, job: Job, rows: int) -> Program:
        """Export for another number of rows."""
        specs = with_rows(job.specs, job.rows, rows)
        return program_of(self._subject, specs, job.replicas, self.trace_seconds)[0]


def _shown(subject: Any, data: Any) -> Any:
    """Take a ``tf.function``'s input signature where no data are given."""
    data = getattr(subject, "input_signature", None) if data is None else data
    if data is None:
        raise PreflightError(
            "There are no data, so there are no shapes to compile for.",
            "XLA compiles for one set of shapes at a time.",
            "Hand in a dataset or TensorSpecs: preflight(model, dataset), or let the function that "
            "makes the model end with `return model, dataset`.",
        )
    return data


def _has_batches(sample: pipeline.Sample) -> bool:
    """Whether there is a batch to go on with; without one, the error that came is the finding."""
    if not sample.shapes and not sample.error:
        raise PreflightError(
            "The dataset gave no batch.",
            "It is empty, or all its rows are fewer than one batch with drop_remainder=True.",
            "Look at it: next(iter(dataset)).",
        )
    return bool(sample.shapes)
