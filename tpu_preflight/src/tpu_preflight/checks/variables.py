"""Check 6, by arithmetic: what a model's variables take on each replica, before it is traced."""

import contextlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tpu_preflight import compiler
from tpu_preflight.program import NotCompilable
from tpu_preflight.text import size


def check(model: Any, slices: Sequence[tuple[str, int]]) -> None:
    """Refuse a model whose variables alone need more memory than each target's replica has.

    Raises:
        NotCompilable: They do; its reason is ``memory``.
    """
    trained, others = _bytes(model, "trainable_variables"), _bytes(model, "non_trainable_variables")
    slots = _slots(getattr(model, "optimizer", None))
    needed = trained * (1 + slots) + others
    if not slices or any(needed <= compiler.available_bytes(target) for target, _ in slices):
        return
    most = max((compiler.available_bytes(target), target) for target, _ in slices)
    held = f"{size(trained)} of weights" + (
        f", {slots} more of each for the optimizer" * (slots > 0)
    )
    raise NotCompilable(
        f"the variables alone need {size(needed)} on each replica ({held}); a replica of "
        f"{most[1]} has {size(most[0])}",
        "Every replica of a TPUStrategy holds all variables.",
        "Take a smaller model.",
        reason="memory",
    )


def _bytes(model: Any, owned: str) -> int:
    """Add up variables; none where the model isn't built yet, or is a function."""
    with contextlib.suppress(ValueError):
        return sum(_size(v) for v in getattr(model, owned, ()))
    return 0


def _size(variable: Any) -> int:
    shape = getattr(variable, "shape", None)  # a vocabulary has none
    return int(np.prod(shape)) * tf.as_dtype(variable.dtype).size if shape is not None else 0


def _slots(optimizer: Any) -> int:
    """Count the variables that an optimizer adds for each weight, by giving it a tiny one."""
    if optimizer is None:
        return 0
    with contextlib.suppress(Exception):  # one that can't be made again counts as none
        again = type(optimizer).from_config(optimizer.get_config())
        weight = tf.Variable(tf.zeros([3]))
        if hasattr(again, "_create_all_weights"):  # the older optimizers
            return _alike(again._create_all_weights([weight]) or again.weights)
        if type(again).__module__.startswith("keras."):
            import keras

            weight = keras.Variable(np.zeros([3], "float32"))
        again.build([weight])
        variables = again.variables
        return _alike(variables() if callable(variables) else variables)
    return 0


def _alike(variables: Iterable[Any]) -> int:
    return sum(tuple(v.shape) == (3,) for v in variables)
