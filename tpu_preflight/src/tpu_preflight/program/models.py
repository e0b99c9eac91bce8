"""What is a Keras model, and what it computes with; imports no library for it."""

import sys


def is_model(thing: object) -> bool:
    """Say whether this is a Keras model, of tf-keras or Keras 3."""
    return any(
        base.__name__ == "Model" and base.__module__.split(".")[0] in ("keras", "tf_keras")
        for base in type(thing).__mro__
    )


def keras_backend(model: object) -> str:
    """Give the library that a Keras model computes with."""
    modules = {base.__module__.partition(".")[0] for base in type(model).__mro__}
    return "tensorflow" if "tf_keras" in modules else sys.modules["keras"].config.backend()
