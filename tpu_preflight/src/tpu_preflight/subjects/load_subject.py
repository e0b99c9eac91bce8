"""Which kind of subject this is, found out without importing any library for it."""

import contextlib
import inspect
import pathlib
from collections.abc import Callable
from typing import Any

from tpu_preflight.errors import PreflightError
from tpu_preflight.program.models import is_py_dataset, keras_of
from tpu_preflight.subjects.jax_subject import JaxSubject, is_jax
from tpu_preflight.subjects.keras_jax_subject import KerasJaxSubject
from tpu_preflight.subjects.subject import Subject


def load_subject(step: Any, data: Any, seconds: float, say: Callable[[str], None]) -> Subject:
    """Call a factory, if it is one, and find out what is to be checked.

    Args:
        step: What the learner handed in: a function, a model, or a factory.
        data: Its data; None where a factory or a signature gives them.
        seconds: After which tracing is given up.
        say: Called with a line before something takes time.

    Raises:
        PreflightError: It is nothing that can be checked; says why.
    """
    factory = None
    if data is None and _is_factory(step):
        factory = step
        say("making the model")
        step = factory()
        if isinstance(step, tuple) and len(step) == 2:
            step, data = step
    elif data is None:
        _refuse_missing_arguments(step)
    # Keras 3 runs on several libraries, so its class tells too little.
    keras = keras_of(step)
    # Of a module of PyTorch, or a class of one.
    classes = (*type(step).__mro__, *getattr(step, "__mro__", ()))
    packages = {kind.__module__.split(".")[0] for kind in classes}
    is_torch = not packages.isdisjoint({"torch", "torch_xla"})
    if is_torch or keras.endswith(("torch", "numpy", "openvino")):
        raise PreflightError(
            f"This is {keras or 'PyTorch'}, which the preflight can't check.",
            "It asks Google's compiler about programs of TensorFlow and JAX.",
            "Set KERAS_BACKEND=jax or tensorflow for a Keras model; PyTorch has its own way to a "
            "TPU (docs.cloud.google.com/tpu/docs/pytorch-on-tpu).",
        )
    if factory is not None and not keras and not callable(step):
        what = f"a value of type {type(step).__name__}"
        if step is None:
            what = "None"
        raise PreflightError(
            f"{_place(factory)} returned {what}.",
            "The first that it returns must be a Keras model or a function of tensors.",
            "Let it end with `return model, dataset`.",
        )
    if hasattr(step, "preprocess_samples") and hasattr(data, "map"):
        data = data.map(step.preprocess_samples)  # as the `fit` of KerasHub's models does
    if keras == "Keras 3 on jax":
        return KerasJaxSubject(step, data)
    # A function tells nothing by itself: its arguments do.
    if is_jax(step, data):
        return JaxSubject(step, data)
    if is_py_dataset(data):
        raise PreflightError(
            f"The data are a {type(data).__name__}, a PyDataset (Sequence) of Keras.",
            "It runs Python for each batch; a TPUStrategy divides a tf.data.Dataset.",
            "Make a dataset of its batches: tf.data.Dataset.from_generator(..., "
            "output_signature=...), or better of files or arrays.",
        )
    # Here, as it imports TensorFlow.
    from tpu_preflight.subjects.tensorflow_subject import TensorflowSubject

    return TensorflowSubject(step, data, factory=factory, seconds=seconds, keras=keras)


def _refuse_missing_arguments(step: object) -> None:
    """Refuse a plain function that needs arguments, where there are no data.

    Raises:
        PreflightError: It names them.
    """
    if not inspect.isfunction(step):
        return
    required = []
    for parameter in inspect.signature(step).parameters.values():
        is_open = parameter.default is parameter.empty
        if is_open and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            required.append(parameter.name)
    names = ", ".join(required)
    raise PreflightError(
        f"{_place(step)} needs arguments ({names}), and there are no data.",
        "A function that makes the model is called without arguments; a step needs its shapes.",
        f"Give them defaults, such as {required[0]}=8; or, where this is the step itself, let a "
        "function without arguments return both: return step, arguments.",
    )


def _place(function: Callable[..., Any]) -> str:
    """Name a function, with its file and line where it has them."""
    name = getattr(function, "__name__", "the factory")
    code = getattr(function, "__code__", None)
    if code is not None:
        name += f" ({pathlib.Path(code.co_filename).name}, line {code.co_firstlineno})"
    return name


def _is_factory(step: object) -> bool:
    """Say whether this is a function without arguments, which makes what is to be checked."""
    if keras_of(step) or not callable(step) or hasattr(step, "input_signature"):
        return False
    with contextlib.suppress(TypeError, ValueError):
        inspect.signature(step).bind()
        return True
    return False
