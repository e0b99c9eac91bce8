"""Which kind of subject this is, told without importing any library for it."""

import pathlib
from collections.abc import Callable
from typing import Any

from helpers.base.errors import CourseError
from helpers.preflight.kind import Kind, Say, is_factory, is_model


def opened(given: Any, data: Any, say: Say) -> Kind:
    """Call a factory, and open what it made.

    Args:
        given: What the learner handed in.
        data: Its data; None where a factory or a signature gives them.
        say: Called with a line before something takes time.

    Raises:
        CourseError: It is nothing that can be checked; says why.
    """
    factory = None
    if data is None and is_factory(given):
        say("making the model")
        factory, made = given, given()
        given, data = made if isinstance(made, tuple) and len(made) == 2 else (made, None)
        _check_made(factory, given)
    from helpers.preflight.kinds.of_tensorflow import OfTensorFlow

    return OfTensorFlow(given, data, factory)


def _check_made(factory: Callable[[], Any], given: object) -> None:
    """Refuse what is neither model nor function, and say where the factory stands."""
    if is_model(given) or callable(given):
        return
    name, code = getattr(factory, "__name__", "the factory"), getattr(factory, "__code__", None)
    if code is not None:
        name += f" ({pathlib.Path(code.co_filename).name}, line {code.co_firstlineno})"
    made = "None" if given is None else f"a value of type {type(given).__name__}"
    raise CourseError(
        f"{name} returned {made}.",
        "The first that it returns must be a Keras model or a function of tensors.",
        "Let it end with `return model, dataset`.",
    )
