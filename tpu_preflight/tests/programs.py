"""Small programs for the compiler's tests."""

import pathlib

import pytest
import tensorflow as tf
import tf_keras
from small_models import LINUX

from tpu_preflight import compiler
from tpu_preflight.program import export

# For tests that start the compiler: none of them leaves a process, or touches the user's cache.
COMPILER = [LINUX, pytest.mark.usefixtures("own_cache", "children")]
ROOT = pathlib.Path(__file__).parents[1]
F8 = tf.TensorSpec([8])
N = tf.TensorSpec([], tf.int32)
STEP_SPECS = (tf.TensorSpec([4, 8]), tf.TensorSpec([4, 3]))


def product(x, y):
    return x @ y


def product_program(n=256):
    return export(product, tf.TensorSpec([n, n]), tf.TensorSpec([n, n]))


def compile_all(programs, *target, **options):
    """Compile programs one after the other, in the same process."""
    with compiler.started():
        return [compiler.compile(program, *target, **options) for program in programs]


def small_model():
    model = tf_keras.Sequential([tf_keras.layers.Dense(16, "relu"), tf_keras.layers.Dense(3)])
    model.compile(tf_keras.optimizers.Adam(), "mse", metrics=["mae"])
    model.build((4, 8))
    return model


def train_step(model):
    return lambda x, y: model.train_step((x, y))
