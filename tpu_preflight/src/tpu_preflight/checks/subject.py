"""A function of TensorFlow or a Keras model, and the programs that a TPU would run of it."""

import contextlib
import dataclasses
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tensorflow as tf

from tpu_preflight.errors import PreflightError
from tpu_preflight.program import NotCompilable, Program, line_finder, program, trace
from tpu_preflight.program.job import Job
from tpu_preflight.program.models import is_model

Specs = tuple[tf.TensorSpec, ...]


@dataclasses.dataclass(frozen=True)
class Subject:
    """What is checked, as a function of flat tensors."""

    name: str  # name of the function or model
    kind: str  # ``function``, ``train step`` or ``forward pass``
    step: Callable[..., Any]  # takes the data's tensors, flat; this is what a TPU would run
    structure: Any  # the nest of ``TensorSpec`` that describes one element of the data
    given: Any  # what the learner handed in
    from_dataset: bool  # whether the data are a dataset, of global batches
    plain: bool = False  # whether AutoGraph leaves the step as it is

    @property
    def model(self) -> Any:
        """The Keras model; None where a function is checked."""
        return self.given if is_model(self.given) else None

    @property
    def specs(self) -> tuple[tf.TypeSpec, ...]:
        """What describes the data's tensors, flat."""
        return tuple(tf.nest.flatten(self.structure, expand_composites=True))

    def of(self, given: Any) -> "Subject":
        """Give the same step of another model or function, which the same factory made."""
        return dataclasses.replace(
            self, given=given, step=self.flat(_call(given, self.structure, self.from_dataset))
        )

    def flat(self, call: Callable[[Any], Any]) -> Callable[..., Any]:
        """Turn a function of one element of the data into one of its tensors, flat."""

        def step(*tensors: tf.Tensor) -> object:
            return call(tf.nest.pack_sequence_as(self.structure, tensors, expand_composites=True))

        step.__name__ = self.name
        return tf.autograph.experimental.do_not_convert(step) if self.plain else step


def subject_of(given: object, data: object) -> Subject:
    """Say what a TPU would run: a model's train step (its forward pass without an optimizer).

    Raises:
        PreflightError: It is neither model nor function, or the model was made under a strategy.
    """
    is_dataset = isinstance(data, tf.data.Dataset)
    structure = data.element_spec if is_dataset else tf.nest.map_structure(_spec, data)
    if is_model(given):
        _refuse_strategy(given)
        name, kind = given.name, "train step"
        if getattr(given, "optimizer", None) is None:
            kind = "forward pass"
    elif callable(given):
        inner = getattr(given, "python_function", given)
        # AutoGraph takes a function that is called <lambda> for one, and doesn't find its source.
        name = getattr(inner, "__name__", type(given).__name__).strip("<>")
        kind = "function"
    else:
        raise PreflightError(
            f"A value of type {type(given).__name__} can't be checked.",
            "It must be a function of tensors or a Keras model.",
            "Write preflight(model, dataset) or preflight(train_step, specs).",
        )
    call = _call(given, structure, is_dataset)
    subject = Subject(name, kind, call, structure, given, is_dataset)
    return dataclasses.replace(subject, step=subject.flat(call))


def _call(given: Any, structure: object, is_dataset: bool) -> Callable[[Any], Any]:
    """Give what a TPU would run of a model or a function, for one element of the data."""
    if not is_model(given):
        return _calls(given, structure, is_dataset)
    has_optimizer = getattr(given, "optimizer", None) is not None
    return given.train_step if has_optimizer else _forward(given)


def _spec(leaf: object) -> tf.TypeSpec:
    if isinstance(leaf, tf.TypeSpec):
        return leaf
    tensor = tf.convert_to_tensor(leaf)
    return tf.TensorSpec(tensor.shape, tensor.dtype)


def _calls(fn: Callable, structure: object, is_dataset: bool) -> Callable[[Any], Any]:
    """Say how an element of the data becomes the function's arguments, as tf.data's map does."""
    if not isinstance(structure, tuple) or hasattr(structure, "_fields"):
        return fn
    if is_dataset and len(structure) > 1:
        with contextlib.suppress(TypeError, ValueError):
            inner = getattr(fn, "python_function", fn)
            parameters = inspect.signature(inner).parameters.values()
            named = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
            needed = [p for p in parameters if p.default is p.empty and p.kind in named]
            if len(needed) < 2 and not any(p.kind == p.VAR_POSITIONAL for p in parameters):
                return fn
    return lambda element: fn(*element)


def _refuse_strategy(model: Any) -> None:
    strategy = getattr(model, "distribute_strategy", None)
    if strategy is None or isinstance(strategy, type(tf.distribute.get_strategy())):
        return
    raise PreflightError(
        f"The model was made under a {type(strategy).__name__}.",
        "The TPU's compiler is asked about a step without this machine's strategy in it.",
        "Hand in the function that makes the model: it is called outside a scope, and once more "
        "inside, to see that everything is made there.",
    )


def _forward(model: Any) -> Callable[[Any], Any]:
    def forward(element: Any) -> object:
        inputs = element[0] if isinstance(element, tuple) else element
        return model(inputs, training=False)

    return forward


def rows_of(shapes: Iterable[Sequence[int] | tf.TensorShape]) -> int | None:
    """Find the rows of a batch: the first size that its tensors share, or None."""
    sizes = {shape[0] for shape in map(tf.TensorShape, shapes) if shape.rank}
    return sizes.pop() if len(sizes) == 1 else None


def with_rows(specs: Sequence[tf.TensorSpec], rows: int | None, share: int | None) -> Specs:
    """Put another number of rows where the specs have ``rows`` first."""
    return tuple(
        tf.TensorSpec([share, *spec.shape[1:]], spec.dtype)
        if rows is not None and spec.shape.rank and spec.shape[0] == rows
        else spec
        for spec in specs
    )


def exported(
    subject: Subject, specs: Specs, slices: Sequence[tuple[str, int]], seconds: float
) -> tuple[Subject, list[Job]]:
    """Export what each target would run; the subject comes back as it was exported.

    Without AutoGraph where that can be: tracing a library's model takes a third of the time then.
    What AutoGraph would rewrite (an ``if`` or a loop on a tensor) raises without it, so a program
    that comes out is the same. A batch of a dataset is a global one, of which each replica gets its
    share. Tracing that takes more than so many ``seconds`` is not tried again.

    Raises:
        NotCompilable: TensorFlow or XLA refuses.
    """
    if subject.model is not None:
        step = tf.autograph.experimental.do_not_convert(subject.step)
        plain = dataclasses.replace(subject, step=step, plain=True)
        try:
            return plain, _jobs(plain, specs, slices, seconds)
        except NotCompilable as error:
            if error.reason == "late":
                raise
    return subject, _jobs(subject, specs, slices, seconds)


def program_of(
    subject: Subject, specs: Specs, replicas: int, seconds: float
) -> tuple[Program, tf.Graph]:
    """Export what one of so many replicas runs, with its part of adding up gradients.

    Where that is refused, what a single replica runs.

    Raises:
        NotCompilable: TensorFlow or XLA refuses, or tracing takes more than so many ``seconds``.
    """
    try:
        traced = trace(subject.step, *specs, replicas=replicas, timeout=seconds)
        return program(traced), traced.graph
    except NotCompilable as error:
        if replicas == 1 or error.reason == "late":
            raise
    traced = trace(subject.step, *specs, timeout=seconds)
    return program(traced), traced.graph


def _jobs(
    subject: Subject, specs: Specs, slices: Sequence[tuple[str, int]], seconds: float
) -> list[Job]:
    rows = rows_of(spec.shape for spec in specs)
    made: dict[tuple[int, int | None], tuple[Program, tf.Graph]] = {}  # each program once
    jobs = []
    for target, replicas in slices:
        share = -(-rows // replicas) if subject.from_dataset and rows is not None else rows
        own = with_rows(specs, rows, share)
        if (replicas, share) not in made:
            made[replicas, share] = program_of(subject, own, replicas, seconds)
        together, graph = made[replicas, share]
        jobs.append(Job(target, replicas, share, own, together, line_finder(graph), graph))
    return jobs
