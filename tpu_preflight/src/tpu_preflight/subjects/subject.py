"""What every subject has, whatever its library. Imports neither TensorFlow nor JAX."""

import abc
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from tpu_preflight.program import TIMEOUT, Program
from tpu_preflight.program.job import Job

if TYPE_CHECKING:
    from tpu_preflight.subjects.pipeline import Sample


class Target(NamedTuple):
    """A TPU that the subject is checked for."""

    name: str  # such as ``v5e-8``
    replicas: int  # its devices


class Subject(abc.ABC):
    """A function or a Keras model, with the data that it is given.

    Attributes:
        library: ``tensorflow`` or ``jax``: what traces it.
        data_form: ``tensors`` (TensorFlow's, or a dataset of them) or ``arrays`` (JAX's).
        name: Of the function or model.
        keras: The Keras of a model, such as ``tf-keras`` or ``Keras 3 on jax``; empty without one.
        kind: ``function``, ``train step`` or ``forward pass``, as a report calls it.
        model: The Keras model; None where a function is checked.
        dataset: The ``tf.data.Dataset`` of its batches; None where it is given anything else.
        sample: The first batches of the dataset; None before `read_sample`, or without a dataset.
        structure: The nest of ``tf.TensorSpec`` that describes one element of the data; None of
            arrays.
        is_traced_by_structure: Whether the step is traced for the shapes that the dataset promises
            (TensorFlow), not for those of each batch (JAX).
        seconds: After which tracing is given up; kept for TensorFlow only.
    """

    library: ClassVar[str]
    data_form: str
    name: str
    kind = "function"
    keras = ""
    model: Any = None
    dataset: Any = None
    sample: "Sample | None" = None
    structure: Any = None
    is_traced_by_structure = True
    seconds = TIMEOUT

    @property
    def title(self) -> str:
        """The name, of a model with its Keras."""
        if self.keras:
            return f"{self.name} ({self.keras})"
        return self.name

    def read_sample(self, count: int) -> None:
        """Read the first ``count`` batches of the dataset.

        Raises:
            PreflightError: It gives no batch, and no error either.
        """
        # Here, as it imports TensorFlow.
        from tpu_preflight.subjects import pipeline

        self.sample = pipeline.sample(self.dataset, count)

    @property
    def python_functions(self) -> tuple[Any, ...]:
        """The learner's functions that are traced, as Python or what a library made of them."""
        if self.model is None:
            return ()
        kind = type(self.model)
        return (kind.train_step, kind.call)

    @property
    def has_batch(self) -> bool:
        """Whether the shapes of a batch are known, so that the step can be traced."""
        return self.sample is None or bool(self.sample.shapes)

    @abc.abstractmethod
    def export(self, targets: Sequence[Target]) -> list[Job]:
        """Trace the step, and write the program that each target would run.

        Raises:
            NotCompilable: The library can't trace it, or XLA refuses it.
        """

    @abc.abstractmethod
    def export_rows(self, job: Job, rows: int) -> Program:
        """Export a job's program for another number of rows on each replica."""
