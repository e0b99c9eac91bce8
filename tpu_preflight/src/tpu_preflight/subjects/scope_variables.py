"""Variables of a model that is made only to be looked at: the large ones share their memory."""

import contextlib
from collections.abc import Callable
from typing import Any

import tensorflow as tf

LARGE = 1_000_000  # values of a variable


def large_ones_shared() -> contextlib.AbstractContextManager:
    """Let large variables of the same shape share the memory of one tensor of zeros.

    A second model of two billion weights would take as long to draw, and as much memory, as the
    first. TensorFlow copies a variable's memory only when the variable changes.
    """
    zeros: dict[tuple[Any, Any], tf.Tensor] = {}

    def create(next_creator: Callable[..., Any], **options: Any) -> Any:
        if not tf.executing_eagerly():
            return next_creator(**options)
        value = options.get("initial_value")
        shape = tf.TensorShape(options.get("shape"))
        has_shape = shape.is_fully_defined() and options.get("dtype")
        if callable(value) and not has_shape:
            # Only its value tells the shape.
            value = value()
            options["initial_value"] = value
        if tf.is_tensor(value):
            shape = value.shape
            options["dtype"] = value.dtype
        is_array = not callable(value) and not tf.is_tensor(value)  # which takes its memory already
        if is_array or not shape.is_fully_defined() or shape.num_elements() < LARGE:
            return next_creator(**options)
        key = tuple(shape), tf.as_dtype(options["dtype"])
        if key not in zeros:
            zeros[key] = tf.zeros(*key)
        options["initial_value"] = zeros[key]
        return next_creator(**options)

    return tf.variable_creator_scope(create)
