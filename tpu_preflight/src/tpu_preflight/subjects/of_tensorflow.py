"""TensorFlow: a function of tensors, or a Keras model on TensorFlow."""

import dataclasses
from collections.abc import Callable, Sequence

import tensorflow as tf

from tpu_preflight.checks import answers, dataset, rules, strategy, update
from tpu_preflight.checks.subject import Subject, rows_of
from tpu_preflight.program import NotCompilable, Program, line_finder, program, trace
from tpu_preflight.program.job import Job
from tpu_preflight.report import Item

Specs = tuple[tf.TensorSpec, ...]


class OfTensorFlow(Subject):
    """A function of tensors or a Keras model, with a dataset or with shapes alone."""

    is_jax = False

    def check_data(
        self, batches: int, slices: Sequence[tuple[str, int]], node: bool, say: Callable
    ) -> tuple[list[Item], bool]:
        """Read a sample of the dataset, where there is one."""
        found, self.sample = dataset.check(self.data, self.structure, batches, slices, node, say)
        return found, self.sample is None or bool(self.sample.shapes)

    def jobs(self, slices: Sequence[tuple[str, int]]) -> list[Job]:
        """Trace, and let TensorFlow write XLA's program for each target.

        Without AutoGraph where that can be: tracing a library's model takes a third of the time
        then. What AutoGraph would rewrite (an ``if`` or a loop on a tensor) raises without it, so a
        program that comes out is the same.
        """
        if self.model is not None:
            self.plain = True
            try:
                return self._jobs(slices)
            except NotCompilable as error:
                self.plain = False
                if error.reason == "late":
                    raise
        return self._jobs(slices)

    def _jobs(self, slices: Sequence[tuple[str, int]]) -> list[Job]:
        """Export each program once; of a dataset's batch each replica gets its share."""
        rows = rows_of(spec.shape for spec in self._specs)
        made = {}
        for replicas in dict.fromkeys(replicas for _, replicas in slices):
            parts = replicas if self.is_dataset else 1  # a strategy divides each tensor by itself
            share = rows and -(-rows // parts)
            specs = _resized(self._specs, lambda size, parts=parts: -(-size // parts))
            exported, graph = self._export(specs, replicas)
            made[replicas] = Job("", replicas, share, specs, exported, line_finder(graph), graph)
        return [dataclasses.replace(made[replicas], target=target) for target, replicas in slices]

    @property
    def _specs(self) -> Specs:
        """What describes the data's tensors, flat: of a dataset its largest batch."""
        specs = tf.nest.flatten(self.structure, expand_composites=True)
        if self.sample is None:
            return tuple(specs)
        shapes = zip(self.sample.largest, specs, strict=True)
        return tuple(tf.TensorSpec(shape, spec.dtype) for shape, spec in shapes)

    def _export(self, specs: Specs, replicas: int) -> tuple[Program, tf.Graph]:
        """Export what one of so many replicas runs, with its part of adding up gradients.

        Where that is refused, what a single replica runs.
        """
        try:
            traced = trace(self.step, *specs, replicas=replicas, timeout=self.seconds)
            return program(traced), traced.graph
        except NotCompilable as error:
            if replicas == 1 or error.reason == "late":
                raise
        return self._export(specs, 1)

    def program(self, job: Job, rows: int) -> Program:
        """Export for another number of rows."""
        return self._export(
            _resized(job.specs, lambda size: rows if size == job.rows else size), job.replicas
        )[0]

    def check_refused(self, error: NotCompilable) -> list[Item]:
        """Say which operation, on which line; ask the TPU bridge where XLA lacks a kernel."""
        items, traced = strategy.check(self, self._specs, error.reason or "refused")
        return [*rules.refused(self, error, traced), *items]

    def check_step(self, job: Job, say: Callable[[str], None]) -> list[Item]:
        """Look for sizes from values, run real batches, and look at the way to a TPU."""
        items = rules.check(self, job.program)
        say("comparing eager and compiled results")
        items += answers.check(self, job)
        say("tracing as on a TPU")
        found, traced = strategy.check(self, job.specs)
        if traced is not None:
            found += [rules.bridged(self.kind, traced), *update.check(self, job)]
        return items + found


def _resized(specs: Specs, size: Callable[[int], int]) -> Specs:
    """Give each tensor another first size, by the one that it has."""
    return tuple(
        tf.TensorSpec([size(spec.shape[0]), *spec.shape[1:]], spec.dtype)
        if spec.shape.rank and spec.shape[0] is not None
        else spec
        for spec in specs
    )
