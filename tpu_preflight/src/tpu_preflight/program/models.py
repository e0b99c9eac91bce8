"""What is a Keras model, and what it computes with; imports no library for it."""

import sys


def is_model(thing: object) -> bool:
    """Say whether this is a Keras model, of tf-keras or Keras 3."""
    return any(
        base.__name__ == "Model" and base.__module__.split(".")[0] in ("keras", "tf_keras")
        for base in type(thing).__mro__
    )


def keras_of(model: object) -> str:
    """Name the Keras of a model: ``tf-keras``, or ``Keras 3 on jax`` and what else it runs on."""
    old = any(base.__module__.startswith("tf_keras") for base in type(model).__mro__)
    return "tf-keras" if old else f"Keras 3 on {sys.modules['keras'].config.backend()}"
