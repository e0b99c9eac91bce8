"""What every kind of subject can say of itself; the checklist asks nothing else.

Imports neither TensorFlow nor JAX.
"""

import abc
import inspect
from collections.abc import Callable, Sequence

from tpu_preflight.estimate.input import Rate
from tpu_preflight.estimate.step import Estimate, Timing
from tpu_preflight.program import TIMEOUT, NotCompilable, Program
from tpu_preflight.program.job import Job
from tpu_preflight.program.models import is_model
from tpu_preflight.report import Item, finding

Say = Callable[[str], None]
Slices = Sequence[tuple[str, int]]


class Kind(abc.ABC):
    """A subject that was opened: what it is, and how it is looked at.

    Attributes:
        name: Of the function or model.
        is_jax: Whether JAX runs it, which runs on TPUs that TensorFlow doesn't.
        can_go_on: Whether there is something to compile; known after `data`.
        trace_seconds: After which tracing is given up.
    """

    name: str
    is_jax = False
    can_go_on = True
    trace_seconds = TIMEOUT

    @abc.abstractmethod
    def data(self, batches: int, slices: Slices, node: bool, say: Say) -> list[Item]:
        """Look at the data: checks 2 and 3."""

    @abc.abstractmethod
    def jobs(self, slices: Slices) -> list[Job]:
        """Export what each target would run.

        Raises:
            NotCompilable: The library or XLA refuses.
        """

    @abc.abstractmethod
    def refused(self, error: NotCompilable) -> list[Item]:
        """Say what was refused, where, and what to write instead: check 1."""

    @abc.abstractmethod
    def rules(self, job: Job) -> list[Item]:
        """Look at a program that could be exported: check 1."""

    @abc.abstractmethod
    def answers(self, job: Job) -> list[Item]:
        """Compare results, eager against compiled: check 4."""

    @abc.abstractmethod
    def way(self) -> list[Item]:
        """Say what must change on the way to a TPU: check 5."""

    def numbers(self, say: Say) -> list[Item]:
        """Compare float32 products with a TPU's: check 8."""
        reason = "only a step of TensorFlow is run with a TPU's products here"
        return [finding(8, "not_run", what="numbers", reason=reason)]

    def rate(
        self, estimates: Sequence[Estimate], timings: Sequence[Timing], node: bool, say: Say
    ) -> tuple[list[Item], Rate | None]:
        """Compare what the data's pipeline gives with what the step needs: check 9."""
        return [finding(9, "not_timed", reason="only a tf.data.Dataset is timed here")], None

    @abc.abstractmethod
    def program(self, job: Job, rows: int) -> Program:
        """Export the job's program for another number of rows."""


def is_factory(thing: object) -> bool:
    """Say whether this is a function without arguments, which makes what is to be checked."""
    if is_model(thing) or not callable(thing) or hasattr(thing, "input_signature"):
        return False
    try:
        parameters = inspect.signature(thing).parameters.values()
    except (TypeError, ValueError):
        return False
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return all(p.default is not p.empty or p.kind in variable for p in parameters)
