"""Check 6, by arithmetic: what a model's variables take on each replica, before it is traced."""

import contextlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tpu_preflight import compiler
from tpu_preflight.checks.subject import variables_of
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
    there, target = max((compiler.available_bytes(target), target) for target, _ in slices)
    if needed <= there:
        return
    more = f", {slots} more of each for the optimizer" if slots else ""
    raise NotCompilable(
        f"the variables alone need {size(needed)} on each replica ({size(trained)} of weights"
        f"{more}); a replica of {target} has {size(there)}",
        "Every replica of a TPUStrategy holds all variables.",
        "Take a smaller model.",
        reason="memory",
    )


def _bytes(model: Any, name: str) -> int:
    variables = [v for v in variables_of(model, name) if hasattr(v, "shape")]  # a vocabulary: none
    return sum(int(np.prod(v.shape)) * tf.as_dtype(v.dtype).size for v in variables)


def _slots(optimizer: Any) -> int:
    """Count the variables that an optimizer adds for each weight, by giving it a tiny one."""
    if optimizer is None:
        return 0
    with contextlib.suppress(Exception):  # one that can't be made again counts as none
        again = type(optimizer).from_config(optimizer.get_config())
        weight = tf.Variable(tf.zeros([3]))
        if type(again).__module__.startswith("keras."):
            import keras

            weight = keras.Variable(np.zeros([3], "float32"))
        # The older optimizers have no `build`.
        build = getattr(again, "_create_all_weights", getattr(again, "build", None))
        build([weight])
        return sum(tuple(v.shape) == (3,) for v in variables_of(again))
    return 0
