"""What is a Keras model, and what it computes with; imports no library for it."""

import sys


def keras_of(thing: object) -> str:
    """Name the Keras of a model: ``tf-keras``, or ``Keras 3 on jax`` and what else it runs on.

    Empty where it is no Keras model.
    """
    modules = []
    is_model = False
    for base in type(thing).__mro__:
        package = base.__module__.split(".")[0]
        modules.append(package)
        if base.__name__ == "Model" and package in ("keras", "tf_keras"):
            is_model = True
    if not is_model:
        return ""
    if "tf_keras" in modules:
        return "tf-keras"
    return f"Keras 3 on {sys.modules['keras'].config.backend()}"


def is_py_dataset(data: object) -> bool:
    """Say whether data are a ``PyDataset`` of Keras, which older ones call ``Sequence``."""
    for base in type(data).__mro__:
        is_keras = base.__module__.partition(".")[0] in ("keras", "tf_keras")
        if is_keras and base.__name__ in ("PyDataset", "Sequence"):
            return True
    return False
