"""The cases of ``cases.toml`` as functions of tensors. Imports TensorFlow."""

import ast
import dataclasses
import functools
import inspect
import pathlib
import re
import tomllib
from collections.abc import Callable

import tensorflow as tf
import tf_keras

from helpers.xla.ops import functions

_GRADIENT = "gradient of: "

# An argument, with or without a name: ``x: float32[8, 8]``.
_ARGUMENT = re.compile(r"(?:(\w+): )?(\w+)\[([\d, ]*)\]")


@dataclasses.dataclass(frozen=True)
class Case:
    """One line of ``cases.toml``."""

    subject: str  # the heading it stands under
    name: str  # its name, unique
    arguments: str  # types, shapes and names of the arguments: ``x: float32[8], n: int32[]``
    code: str  # the expression that is compiled

    @property
    def specs(self) -> tuple[tf.TensorSpec, ...]:
        """Shapes and types of the arguments."""
        return tuple(
            tf.TensorSpec([int(n) for n in sizes.split(",") if n], dtype)
            for _, dtype, sizes in _ARGUMENT.findall(self.arguments)
        )

    @property
    def function(self) -> Callable:
        """The function of tensors, with fresh variables where it has any."""
        code = self.code.removeprefix(_GRADIENT)
        if names := [name for name, _, _ in _ARGUMENT.findall(self.arguments) if name]:
            code = f"lambda {', '.join(names)}: {code}"
        fn = eval(code, vars(functions))  # noqa: S307 - our own file is code, like this one
        if isinstance(fn, tf_keras.metrics.Metric):
            fn = _update(fn)
        elif isinstance(fn, tf_keras.layers.Layer | tuple):
            fn = _loss_and_gradients(fn, self.specs[0].shape)
        if self.code.startswith(_GRADIENT):
            fn = _gradient(fn)
        # AutoGraph has nothing to rewrite in an expression, and would look for its source.
        return tf.autograph.experimental.do_not_convert(fn) if fn.__name__ == "<lambda>" else fn

    @property
    def shown(self) -> str:
        """The code to show: for the name of a function of ours, its source."""
        name = self.code.removeprefix(_GRADIENT).removesuffix("()")
        if not name.isidentifier():
            return self.code
        code = ast.unparse(ast.parse(inspect.getsource(getattr(functions, name))))  # no comments
        return f"{_GRADIENT}{code}" if self.code.startswith(_GRADIENT) else code


@functools.cache
def cases() -> tuple[Case, ...]:
    """List all cases, in the table's order."""
    text = pathlib.Path(__file__).with_name("cases.toml").read_text("utf-8")
    return tuple(
        Case(subject, name, *line)
        for subject, lines in tomllib.loads(text).items()
        for name, line in lines.items()
    )


def _gradient(fn: Callable) -> Callable:
    @functools.wraps(fn)
    def differentiated(x: tf.Tensor, *rest: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(fn(x, *rest))
        return tf.convert_to_tensor(tape.gradient(loss, x))

    return differentiated


def _update(metric: tf_keras.metrics.Metric) -> Callable:
    def update(labels: tf.Tensor, predictions: tf.Tensor) -> tf.Tensor:
        metric.update_state(labels, predictions)
        return metric.result()

    return update


def _loss_and_gradients(layers: tf_keras.layers.Layer | tuple, shape: tf.TensorShape) -> Callable:
    model = tf_keras.Sequential(layers)
    model.build(tuple(shape))

    def loss_and_gradients(x: tf.Tensor) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(model(x, training=True) ** 2)
        return [loss, *tape.gradient(loss, model.trainable_variables)]

    return loss_and_gradients
