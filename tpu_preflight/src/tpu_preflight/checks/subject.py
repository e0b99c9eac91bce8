"""A function of TensorFlow or a Keras model, as the step that a TPU would run."""

import contextlib
import copy
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tensorflow as tf

from tpu_preflight.checks import pipeline
from tpu_preflight.errors import PreflightError
from tpu_preflight.program import TIMEOUT
from tpu_preflight.program.models import is_model
from tpu_preflight.program.tracing import spec_of


class Subject:
    """A model's train step (its forward pass without an optimizer) or a function.

    Args:
        given: A function of tensors, or a Keras model.
        data: A ``tf.data.Dataset`` of global batches, or a nest of ``tf.TensorSpec``s or tensors;
            None where a ``tf.function``'s signature tells the shapes.
        factory: What made it, where there is one; called once more, inside a strategy's scope.
        seconds: After which tracing is given up.

    Attributes:
        name: Of the function or model.
        kind: ``function``, ``train step`` or ``forward pass``.
        structure: The nest of ``TensorSpec`` that describes one element of the data.
        sample: The first batches of the dataset, once they were read.
        plain: Whether AutoGraph leaves the step as it is.

    Raises:
        PreflightError: It is neither model nor function or was made under a strategy, or there are
            no data.
    """

    def __init__(
        self,
        given: Any,
        data: Any,
        factory: Callable[[], Any] | None = None,
        seconds: float = TIMEOUT,
    ) -> None:
        data = getattr(given, "input_signature", None) if data is None else data
        if data is None:
            raise PreflightError(
                "There are no data, so there are no shapes to compile for.",
                "XLA compiles for one set of shapes at a time.",
                "Hand in a dataset or TensorSpecs: preflight(model, dataset), or let the function "
                "that makes the model end with `return model, dataset`.",
            )
        self.given, self.data, self.factory, self.seconds = given, data, factory, seconds
        self.sample: pipeline.Sample | None = None
        self.plain = False
        self.is_dataset = isinstance(data, tf.data.Dataset)
        self.structure = (
            data.element_spec if self.is_dataset else tf.nest.map_structure(spec_of, data)
        )
        if self.model is not None:
            _refuse_strategy(given)
            trained = getattr(given, "optimizer", None) is not None
            self.name, self.kind = given.name, "train step" if trained else "forward pass"
        elif callable(given):
            inner = getattr(given, "python_function", given)
            name = getattr(inner, "__name__", type(given).__name__)
            # AutoGraph takes a function that is called <lambda> for one, and doesn't find its
            # source.
            self.name, self.kind = name.strip("<>"), "function"
        else:
            raise PreflightError(
                f"A value of type {type(given).__name__} can't be checked.",
                "It must be a function of tensors or a Keras model.",
                "Write preflight(model, dataset) or preflight(train_step, specs).",
            )

    @property
    def model(self) -> Any:
        """The Keras model; None where a function is checked."""
        return self.given if is_model(self.given) else None

    def of(self, given: Any) -> "Subject":
        """Give the same step of another model or function, which the same factory made."""
        other = copy.copy(self)
        other.given = given
        return other

    @property
    def step(self) -> Callable[..., Any]:
        """What a TPU would run; takes the data's tensors, flat."""
        if self.kind == "train step":
            return self.flat(self.given.train_step)
        return self.flat(
            self._call()
            if self.model is None
            else lambda x: self.given(x[0] if isinstance(x, tuple) else x, training=False)
        )

    def flat(self, call: Callable[[Any], Any]) -> Callable[..., Any]:
        """Turn a function of one element of the data into one of its tensors, flat."""

        def step(*tensors: tf.Tensor) -> object:
            return call(self.packed(tensors))

        step.__name__ = self.name
        return tf.autograph.experimental.do_not_convert(step) if self.plain else step

    def packed(self, tensors: Sequence[tf.Tensor]) -> Any:
        """Make one element of the data of its tensors, flat."""
        return tf.nest.pack_sequence_as(self.structure, tensors, expand_composites=True)

    def _call(self) -> Callable[[Any], Any]:
        """Make arguments of an element of the data, as tf.data's map does."""
        fn, structure = self.given, self.structure
        if isinstance(fn, tf.types.experimental.PolymorphicFunction):
            # As if it were never called: one of a module made its variables for the first model.
            fn = fn._clone(None)
        if not isinstance(structure, tuple) or hasattr(structure, "_fields"):
            return fn
        if self.is_dataset and len(structure) > 1:
            with contextlib.suppress(TypeError, ValueError):
                signature = inspect.signature(getattr(fn, "python_function", fn))
                signature.bind(structure)  # raises where it needs more than one
                kinds = {parameter.kind for parameter in signature.parameters.values()}
                if inspect.Parameter.VAR_POSITIONAL not in kinds:
                    return fn
        return lambda element: fn(*element)


def _refuse_strategy(model: Any) -> None:
    strategy = getattr(model, "distribute_strategy", None)
    if not isinstance(strategy, type(tf.distribute.get_strategy()) | None):
        raise PreflightError(
            f"The model was made under a {type(strategy).__name__}.",
            "The TPU's compiler is asked about a step without this machine's strategy in it.",
            "Hand in the function that makes the model: it is called outside a scope, and once "
            "more inside, to see that everything is made there.",
        )


def rows_of(shapes: Iterable[Sequence[int] | tf.TensorShape]) -> int | None:
    """Find the rows of a batch: the first size that its tensors share, or None."""
    sizes = {shape[0] for shape in map(tf.TensorShape, shapes) if shape.rank}
    return sizes.pop() if len(sizes) == 1 else None


def variables_of(owner: Any, name: str = "variables") -> list[Any]:
    """List the variables that a model, an optimizer or a metric has under this name.

    None where it has none, or isn't built yet: tf-keras may raise then.
    """
    with contextlib.suppress(ValueError):
        found = getattr(owner, name, ())
        return list(found() if callable(found) else found)
    return []
