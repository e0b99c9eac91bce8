"""Which kind of subject this is, told without importing any library for it."""

import contextlib
import inspect
import pathlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from tpu_preflight.errors import PreflightError
from tpu_preflight.program.models import is_model, keras_of
from tpu_preflight.subjects.of_jax import OfJax, OfKerasOnJax, is_of_jax

if TYPE_CHECKING:
    from tpu_preflight.subjects.of_tensorflow import OfTensorFlow

Kind: TypeAlias = "OfJax | OfTensorFlow"


def opened(given: Any, data: Any, seconds: float, say: Callable[[str], None]) -> Kind:
    """Call a factory, and open what it made.

    Args:
        given: What the learner handed in.
        data: Its data; None where a factory or a signature gives them.
        seconds: After which tracing is given up.
        say: Called with a line before something takes time.

    Raises:
        PreflightError: It is nothing that can be checked; says why.
    """
    factory = given if data is None and _is_factory(given) else None
    if factory is not None:
        say("making the model")
        made = factory()
        given, data = made if isinstance(made, tuple) and len(made) == 2 else (made, None)
    its = (*type(given).__mro__, *getattr(given, "__mro__", ()))
    is_torch = any(kind.__module__.split(".")[0] in ("torch", "torch_xla") for kind in its)
    keras = keras_of(given) if is_model(given) else ""
    if is_torch or keras.endswith(("torch", "numpy", "openvino")):
        raise PreflightError(
            f"This is {keras or 'PyTorch'}, which the preflight can't check.",
            "It asks Google's compiler about programs of TensorFlow and JAX.",
            "Set KERAS_BACKEND=jax or tensorflow for a Keras model; PyTorch has its own way to a "
            "TPU (docs.cloud.google.com/tpu/docs/pytorch-on-tpu).",
        )
    if factory is not None:
        _check_made(factory, given)
    if hasattr(given, "preprocess_samples") and hasattr(data, "map"):
        data = data.map(given.preprocess_samples)  # as the `fit` of KerasHub's models does
    if keras == "Keras 3 on jax":
        return OfKerasOnJax(given, data)
    if is_of_jax(given, data):
        return OfJax(given, data)
    from tpu_preflight.subjects.of_tensorflow import OfTensorFlow  # here: it imports TensorFlow

    return OfTensorFlow(given, data, factory, seconds)


def _is_factory(thing: object) -> bool:
    """Say whether this is a function without arguments, which makes what is to be checked."""
    if is_model(thing) or not callable(thing) or hasattr(thing, "input_signature"):
        return False
    with contextlib.suppress(TypeError, ValueError):
        inspect.signature(thing).bind()
        return True
    return False


def _check_made(factory: Callable[[], Any], given: object) -> None:
    """Refuse what is neither model nor function, and say where the factory stands."""
    if is_model(given) or callable(given):
        return
    name, code = getattr(factory, "__name__", "the factory"), getattr(factory, "__code__", None)
    if code is not None:
        name += f" ({pathlib.Path(code.co_filename).name}, line {code.co_firstlineno})"
    made = "None" if given is None else f"a value of type {type(given).__name__}"
    raise PreflightError(
        f"{name} returned {made}.",
        "The first that it returns must be a Keras model or a function of tensors.",
        "Let it end with `return model, dataset`.",
    )
