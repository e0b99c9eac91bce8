"""Check 1: what XLA refuses is named with the learner's line."""

import numpy as np
import pytest
import tensorflow as tf
from small_models import VECTOR, states, the

from helpers.preflight.checklist import preflight
from helpers.preflight.report import FAIL, OPEN, WARN

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
