"""Whether something is a Keras model, and of which Keras; imports no library for it."""

import sys


def is_model(thing: object) -> bool:
    """Say whether this is a Keras model, of tf-keras or Keras 3."""
    for base in type(thing).__mro__:
        package = base.__module__.split(".")[0]
        if base.__name__ == "Model" and package in ("keras", "tf_keras"):
            return True
    return False


def keras_of(model: object) -> str:
    """Name the Keras of a model: ``tf-keras``, or ``Keras 3 on jax`` and what else it runs on."""
    if any(base.__module__.startswith("tf_keras") for base in type(model).__mro__):
        return "tf-keras"
    return f"Keras 3 on {sys.modules['keras'].config.backend()}"
