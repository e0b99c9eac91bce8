"""TensorFlow: a function of tensors, or a Keras model on TensorFlow."""

import contextlib
import copy
import dataclasses
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.distribute import values

from tpu_preflight.errors import PreflightError
from tpu_preflight.program import NotCompilable, Program, Tracing, line_finder, program, trace
from tpu_preflight.program.job import Job
from tpu_preflight.program.tracing import spec_of
from tpu_preflight.subjects.scope_variables import large_ones_shared
from tpu_preflight.subjects.subject import Subject, Target

Specs = tuple[tf.TensorSpec, ...]

# With so many bytes of variables (30 million parameters with the two slots of Adam), or values in
# one tensor of a batch (of images), a whole training step takes long on a CPU.
MANY_BYTES = 360_000_000
MANY_VALUES = 1_000_000


class TensorflowSubject(Subject):
    """A model's train step (its forward pass without an optimizer) or a function.

    Args:
        step: A function of tensors, or a Keras model.
        data: A ``tf.data.Dataset`` of global batches, or a nest of ``tf.TensorSpec``s or tensors;
            None where a ``tf.function``'s signature tells the shapes. Arrays or tensors that come
            with a model are one global batch.
        factory: What made it, where there is one; called once more, inside a strategy's scope.
        seconds: After which tracing is given up.
        keras: The Keras of a model; empty where it is a function.

    Attributes:
        function: The function of tensors; None where a model is checked.
        factory: As given.

    Raises:
        PreflightError: It is neither model nor function or was made under a strategy, or there are
            no data.
    """

    library = "tensorflow"
    data_form = "tensors"

    def __init__(
        self,
        step: Any,
        data: Any,
        *,
        factory: Callable[[], Any] | None,
        seconds: float,
        keras: str,
    ) -> None:
        if data is None:
            data = getattr(step, "input_signature", None)
        if data is None:
            raise PreflightError(
                "There are no data, so there are no shapes to compile for.",
                "XLA compiles for one set of shapes at a time.",
                "Give a dataset or TensorSpecs: preflight(model, dataset), or let the function "
                "that makes the model end with `return model, dataset`.",
            )
        if keras and _are_arrays(data):
            data = tf.data.Dataset.from_tensors(tf.nest.map_structure(_as_fit_takes_it, data))
        self.factory = factory
        self.seconds = seconds
        self._uses_autograph = True
        self._is_in_scope = False  # whether it was made inside a strategy's scope
        if isinstance(data, tf.data.Dataset):
            self.dataset = data
            self.structure = data.element_spec
        else:
            self.structure = tf.nest.map_structure(spec_of, data)
        self.keras = keras
        self.model, self.function = (step, None) if keras else (None, step)
        if keras:
            _refuse_strategy(getattr(step, "distribute_strategy", None))
            self.name = self.model.name
            self.kind = "forward pass"
            if getattr(self.model, "optimizer", None) is not None:
                self.kind = "train step"
        elif callable(self.function):
            python_function = getattr(self.function, "python_function", self.function)
            name = getattr(python_function, "__name__", type(self.function).__name__)
            # AutoGraph takes a function that is called <lambda> for one, and doesn't find its
            # source.
            self.name = name.strip("<>")
        else:
            raise PreflightError(
                f"A value of type {type(step).__name__} can't be checked.",
                "It must be a function of tensors or a Keras model.",
                "Write preflight(model, dataset) or preflight(train_step, specs).",
            )

    # --- what a TPU would run ---------------------------------------------------------------------

    @property
    def step(self) -> Callable[..., Any]:
        """What a TPU would run; takes the data's tensors, flat."""
        if self.kind == "train step":
            return self._flat(self.model.train_step)
        if self.kind == "forward pass":
            return self._flat(self._forward)
        return self._flat(self._call())

    @property
    def python_functions(self) -> tuple[Any, ...]:
        """The function, or what a model has of a step."""
        return (self.function, *super().python_functions)

    @property
    def test_step(self) -> Callable[..., Any]:
        """A model's step without dropout and without an update; takes the same as `step`."""
        return self._flat(self.model.test_step)

    @property
    def has_test_step(self) -> bool:
        """Whether the model's test step belongs to its train step.

        One that a model inherits, next to a train step of its own and without a compiled loss, runs
        a forward pass that nobody wrote it for.
        """
        kind = type(self.model)
        for library in kind.__mro__:
            if library.__module__.partition(".")[0] in ("keras", "tf_keras"):
                break
        if kind.test_step is not library.test_step or kind.train_step is library.train_step:
            return True
        return bool(getattr(self.model, "loss", None))

    def _forward(self, element: Any) -> Any:
        if isinstance(element, tuple):  # with labels
            element = element[0]
        return self.model(element, training=False)

    def _flat(self, call: Callable[[Any], Any]) -> Callable[..., Any]:
        """Turn a function of one element of the data into one of its tensors, flat."""

        def step(*tensors: tf.Tensor) -> object:
            return call(self._packed(tensors))

        step.__name__ = self.name
        if self._uses_autograph:
            return step
        return tf.autograph.experimental.do_not_convert(step)

    def _packed(self, tensors: Sequence[tf.Tensor]) -> Any:
        """Make one element of the data of its tensors, flat."""
        return tf.nest.pack_sequence_as(self.structure, tensors, expand_composites=True)

    def _call(self) -> Callable[[Any], Any]:
        """Make arguments of an element of the data, as tf.data's map does."""
        function = self.function
        structure = self.structure
        if isinstance(function, tf.types.experimental.PolymorphicFunction):
            # As if it were never called: one of a module made its variables for the first model.
            function = function._clone(None)
        if not isinstance(structure, tuple) or hasattr(structure, "_fields"):
            return function
        if self.dataset is not None and len(structure) > 1 and _takes_one(function, structure):
            return function

        def call(element: Any) -> Any:
            return function(*element)

        return call

    @property
    def is_marked(self) -> bool:
        """Whether ``jit_compile=True`` is set, of a function or in a model's ``compile``."""
        if self.model is None:
            return bool(getattr(self.function, "_jit_compile", None))
        # Keras 3 calls it jit_compile, tf-keras has it as a private attribute.
        private = getattr(self.model, "_jit_compile", None)
        return getattr(self.model, "jit_compile", private) is True

    @property
    def variables(self) -> dict[str, tf.Variable]:
        """The variables of a model, its optimizer and its metrics, by owner and name."""
        owners = {"model": self.model, "optimizer": getattr(self.model, "optimizer", None)}
        for metric in getattr(self.model, "metrics", ()):
            owners[f"metric {metric.name}"] = metric
        variables = {}
        for label, owner in owners.items():
            listed = ()
            with contextlib.suppress(ValueError):  # tf-keras may raise before it is built
                listed = getattr(owner, "variables", ())
                if callable(listed):  # of an optimizer of tf-keras
                    listed = listed()
            for variable in listed:
                tf_variable = variable
                if not isinstance(variable, tf.Variable):
                    tf_variable = getattr(variable, "value", None)  # Keras 3's hold TensorFlow's
                # A vocabulary is listed as well, and is no variable.
                if isinstance(tf_variable, tf.Variable):
                    variables[f"{label}: {variable.name}"] = tf_variable
        return variables

    def list_weights(self) -> None:
        """List the weights of a model of tf-keras, as its ``fit`` does when it ends.

        Raises:
            ValueError: The step never called a part of the model.
        """
        optimizer = getattr(self.model, "optimizer", None)
        if hasattr(optimizer, "finalize_variable_values"):
            _ = self.model.trainable_variables

    def takes_long(self, step: Program) -> bool:
        """Say whether a training step of the model takes long on a CPU."""
        if self.model is None:
            return False
        most_values = max(int(np.prod(shape)) for shape in self.sample.largest)
        variables = [p.bytes for p in step.parameters if p.kind == "variable"]
        return sum(variables) > MANY_BYTES or most_values > MANY_VALUES

    # --- as a graph, and as XLA's program ---------------------------------------------------------

    @property
    def specs(self) -> Specs:
        """What describes the data's tensors, flat: of a dataset its largest batch."""
        # A dataset's structure may leave sizes open; its largest batch needs the most memory.
        specs = tf.nest.flatten(self.structure, expand_composites=True)
        if self.sample is None:
            return tuple(specs)
        largest = zip(self.sample.largest, specs, strict=True)
        return tuple(tf.TensorSpec(shape, spec.dtype) for shape, spec in largest)

    def trace(self, *specs: Any, **options: Any) -> Tracing:
        """Build the step's graph; specifications (or tensors) and options as for `program.trace`.

        Raises:
            NotCompilable: TensorFlow can't trace it.
        """
        if not self._is_in_scope:
            return trace(self.step, *specs, **options)
        # The rest of its variables, such as an optimizer's, is made while it is traced.
        with large_ones_shared():
            return trace(self.step, *specs, **options)

    def export(self, targets: Sequence[Target]) -> list[Job]:
        """Trace, and let TensorFlow write XLA's program for each target.

        Without AutoGraph where that can be: tracing a library's model takes a third of the time
        then. What AutoGraph would rewrite (an ``if`` or a loop on a tensor) raises without it, so a
        program that comes out is the same.
        """
        if self.model is not None:
            self._uses_autograph = False
            try:
                return self._jobs(targets)
            except NotCompilable as error:
                self._uses_autograph = True
                if error.reason == "late":
                    raise
        return self._jobs(targets)

    def _jobs(self, targets: Sequence[Target]) -> list[Job]:
        """Export each program once; of a dataset's batch each replica gets its share."""
        rows = rows_of(spec.shape for spec in self.specs)
        jobs = {}
        for target in targets:
            if target.replicas in jobs:
                continue
            # A strategy divides each tensor by itself.
            parts = target.replicas if self.dataset is not None else 1
            sizes = [_share(spec, parts) for spec in self.specs]
            specs = _resized(self.specs, sizes)
            step, graph = self._export(specs, target.replicas)
            jobs[target.replicas] = Job(
                target="",
                replicas=target.replicas,
                rows=rows and -(-rows // parts),
                specs=specs,
                program=step,
                find=line_finder(graph),
                graph=graph,
            )
        return [dataclasses.replace(jobs[replicas], target=name) for name, replicas in targets]

    def _export(self, specs: Specs, replicas: int) -> tuple[Program, tf.Graph]:
        """Export what one of so many replicas runs, with its part of adding up gradients.

        Where that is refused, what a single replica runs.
        """
        try:
            traced = self.trace(*specs, replicas=replicas, timeout=self.seconds)
            return program(traced), traced.graph
        except NotCompilable as error:
            if replicas == 1 or error.reason == "late":
                raise
        return self._export(specs, 1)

    def export_rows(self, job: Job, rows: int) -> Program:
        """Export a job's program for another number of rows on each replica."""
        sizes = []
        for spec in job.specs:
            has_rows = job.rows is not None and _first_size(spec) == job.rows
            sizes.append(rows if has_rows else None)
        step, _ = self._export(_resized(job.specs, sizes), job.replicas)
        return step

    # --- inside a strategy's scope ----------------------------------------------------------------

    def remade(self, strategy: tf.distribute.Strategy, specs: Specs) -> "TensorflowSubject":
        """Call the factory once more, inside a strategy's scope, and give what it made there.

        Nothing runs what is made there, so its large variables hold no values of their own.

        Args:
            strategy: Without a TPU, from `program.bridge`.
            specs: What one replica gets; Keras 3 builds a model from it.
        """
        remade = copy.copy(self)
        remade._is_in_scope = True
        with strategy.scope(), large_ones_shared():
            step = self.factory()
            if isinstance(step, tuple):
                step = step[0]
            if self.keras:
                remade.model = step
            else:
                remade.function = step
            remade._build(specs)
        return remade

    def _build(self, specs: Specs) -> None:
        """Let Keras 3 build a model from a replica's rows, as its ``fit`` does under a strategy.

        Two replicas are handed over. Keras asks for the mean of theirs. Of a tuple, a
        ``TPUStrategy`` gives the first's, a ``MirroredStrategy`` means, which makes floating-point
        numbers of whole ones: a model must be ready for both.
        """
        if self.sample is None or not self._is_built_by_fit:
            return
        rows = []
        for tensor, spec in zip(self.sample.batches[0], specs, strict=True):
            if spec.shape.rank:
                tensor = tensor[: spec.shape[0]]
            rows.append(tensor)
        if isinstance(self.structure, tuple) and self._has_integers:
            means = self._packed([_mean_of_replicas(row) for row in rows])
            self.model._maybe_symbolic_build(data_batch=means)
        element = tf.nest.map_structure(_on_two_replicas, self._packed(rows))
        self.model._maybe_symbolic_build(iterator=[(0, 0, iter([element]))])

    # --- on two replicas of this CPU --------------------------------------------------------------

    @property
    def _is_built_by_fit(self) -> bool:
        """Whether ``fit`` tries the model before its first step under a strategy: Keras 3's."""
        return hasattr(self.model, "_maybe_symbolic_build")

    @property
    def _has_integers(self) -> bool:
        """Whether the sample has whole numbers, of which a mean is none."""
        return any(tensor.dtype.is_integer for tensor in self.sample.batches[0])

    @property
    def can_fit_replicated(self) -> bool:
        """Whether the model can be made again and trained on two CPUs of this process."""
        if self.factory is None or self.sample is None or self.kind != "train step":
            return False
        # What these settings raise is known, and says nothing of the model.
        if self.is_marked or getattr(self.model, "run_eagerly", False):
            return False
        # Outside a tuple a ``TPUStrategy`` leaves whole numbers whole; the CPU's takes their mean.
        if self._has_integers and not isinstance(self.structure, tuple):
            return False
        return self._is_built_by_fit and len(tf.config.list_logical_devices("CPU")) > 1

    def fit_replicated(self, rows: int) -> None:
        """Make the model once more, and let its ``fit`` take one step on two CPUs.

        Args:
            rows: Of the sample's first batch, for both replicas together.
        """
        tensors = []
        for tensor in self.sample.batches[0]:
            if tensor.shape.rank:
                tensor = tensor[:rows]
            tensors.append(tensor)
        data = tf.data.Dataset.from_tensors(self._packed(tensors))
        strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
        with strategy.scope():
            model = self.factory()
        if isinstance(model, tuple):
            model = model[0]
        model.fit(data, steps_per_epoch=1, verbose=0)


def _mean_of_replicas(tensor: tf.Tensor) -> tf.Tensor:
    """Give a tensor the type of a mean: of int32 it is float64."""
    if not tensor.dtype.is_integer:
        return tensor
    return tensor / tf.ones([], tensor.dtype)


def _on_two_replicas(tensor: tf.Tensor) -> values.PerReplica:
    return values.PerReplica((tensor, tensor))


def _takes_one(function: Callable[..., Any], structure: tuple[Any, ...]) -> bool:
    """Say whether a function takes a pair as one argument, not as two."""
    try:
        signature = inspect.signature(getattr(function, "python_function", function))
        signature.bind(structure)  # raises where it needs more than one
    except (TypeError, ValueError):
        return False
    kinds = {parameter.kind for parameter in signature.parameters.values()}
    return inspect.Parameter.VAR_POSITIONAL not in kinds


def _are_arrays(data: Any) -> bool:
    """Say whether data have values, and are no descriptions."""
    return all(isinstance(leaf, np.ndarray | tf.Tensor) for leaf in tf.nest.flatten(data))


def _as_fit_takes_it(array: np.ndarray | tf.Tensor) -> np.ndarray | tf.Tensor:
    """Give an array of Python's wide numbers the type that ``fit`` gives it."""
    if isinstance(array, np.ndarray) and array.dtype == np.float64:
        return array.astype("float32")
    return array


def _refuse_strategy(strategy: Any) -> None:
    if not isinstance(strategy, type(tf.distribute.get_strategy()) | None):
        raise PreflightError(
            f"The model was made under a {type(strategy).__name__}.",
            "The TPU's compiler is asked about a step without this machine's strategy in it.",
            "Give the function that makes the model: it is called outside a scope, and once "
            "more inside, to see that everything is made there.",
        )


def _first_size(spec: tf.TensorSpec) -> int | None:
    """Give the first dimension's size; None of a scalar, or where it is open."""
    if not spec.shape.rank:
        return None
    return spec.shape[0]


def _share(spec: tf.TensorSpec, parts: int) -> int | None:
    """Give a replica's share of the first dimension, rounded up."""
    size = _first_size(spec)
    if size is None:
        return None
    return -(-size // parts)


def _resized(specs: Specs, sizes: Sequence[int | None]) -> Specs:
    """Give each tensor another first size; None leaves it."""
    resized = []
    for spec, size in zip(specs, sizes, strict=True):
        if size is not None:
            spec = tf.TensorSpec([size, *spec.shape[1:]], spec.dtype)
        resized.append(spec)
    return tuple(resized)


def rows_of(shapes: Iterable[Sequence[int] | tf.TensorShape]) -> int | None:
    """Find the rows of a batch: the first size that its tensors share, or None."""
    sizes = set()
    for shape in map(tf.TensorShape, shapes):
        if shape.rank:
            sizes.add(shape[0])
    return sizes.pop() if len(sizes) == 1 else None
