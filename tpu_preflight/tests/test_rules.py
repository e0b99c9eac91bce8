"""Check 1: what XLA refuses is named with the learner's line."""

import functools

import numpy as np
import pytest
import tensorflow as tf
from small_models import VECTOR, states, the

from tpu_preflight.checklist import preflight
from tpu_preflight.report import FAIL, OPEN, WARN

pytestmark = pytest.mark.slow


def with_python(x):
    return tf.numpy_function(np.sin, [x], tf.float32)


def with_value(x):
    return tf.range(tf.cast(x[0], tf.int32))


@tf.autograph.experimental.do_not_convert
def with_bool(x):
    return x if tf.reduce_sum(x) > 0 else -x


@pytest.mark.parametrize(
    ("fn", "says", "line", "fix"),
    [
        (with_python, "PyFunc", "tf.numpy_function(np.sin", "input pipeline"),
        (with_value, "depends on a value", "tf.range(tf.cast(x[0]", "static shape"),
        (with_bool, "Python `bool`", "if tf.reduce_sum(x) > 0", "tf.where"),
    ],
)
def test_what_is_refused_is_named_with_its_line(fn, says, line, fix, no_compiler):
    result = preflight(fn, VECTOR, "v5e-1")
    item = the(result, 1)
    assert item.state == FAIL and says in item.finding and line in item.where and fix in item.fix
    assert ("a round trip in each step" in item.fix) == (fn is with_python)
    assert result.exit_status == 1 and states(result, 6) == states(result, 7) == [OPEN]


def test_a_size_from_values_warns_with_its_bound(no_compiler):
    def with_unique(x):
        return tf.reduce_sum(tf.unique(x).y)

    item = the(preflight(with_unique, VECTOR, "v5e-1"), 1, "data-dependent")
    assert item.state == WARN and "tf.unique(x)" in item.where
    assert "f32[<=8]" in item.finding and "all 8 elements" in item.finding


@pytest.mark.parametrize(
    ("function", "check", "word"),
    [
        (tf.where, 1, "data-dependent"),
        (functools.partial(tf.debugging.check_numerics, message=""), 4, "checks inside"),
    ],
)
def test_what_a_library_makes_is_named_with_its_layer(function, check, word, no_compiler):
    layer = tf.keras.layers.Lambda(function, name="made_here")
    model = tf.keras.Sequential([tf.keras.layers.Input([8]), layer])
    item = the(preflight(model, tf.TensorSpec([2, 8]), "v5e-1"), check, word)
    assert item.where.startswith("layer ") and "made_here" in item.where


@pytest.mark.parametrize("wrapped", [lambda fn: fn, tf.function])
def test_a_lambda_is_read_like_any_function(wrapped, no_compiler):
    fn = wrapped(lambda x: tf.reduce_sum(x[x > 0]) if x[0] > 0 else x[1])
    item = the(preflight(fn, VECTOR, "v5e-1"), 1, "data-dependent")
    assert item.state == WARN and "fn = wrapped(lambda" in item.where
