"""What TensorFlow's TPU bridge refuses and leaves to the host, asked on a CPU."""

import numpy as np
import pytest
import tensorflow as tf

from helpers.xla.bridge import bridge

pytestmark = pytest.mark.slow

X = tf.TensorSpec([4])
TABLE, COUNT = tf.Variable(tf.ones([8, 4])), tf.Variable(0, dtype=tf.int64)
GENERATOR = tf.random.Generator.from_seed(1)


def printing(x):
    tf.print("sum", tf.reduce_sum(x))
    return tf.sqrt(x)


def python(x):
    return tf.ensure_shape(tf.numpy_function(np.sort, [x], tf.float32), [4])


def scatter(x):
    TABLE.scatter_nd_update([[0]], x[None])
    return tf.reduce_sum(TABLE)


def two_variables(x):
    COUNT.assign_add(1)
    return tf.reduce_sum(TABLE @ x[:, None])


def with_an_if(x):
    if tf.reduce_sum(x) > 10:
        x = x / 2.0
    return x


# Function, what is refused, and what runs on the host with soft placement: by TensorFlow's list of
# operations that have a kernel for TPUs (the tensorflow-tpu package's registry, read 2026-11).
CASES = [
    (tf.nn.softmax, "", ()),
    (two_variables, "", ()),
    (with_an_if, "", ()),
    (lambda x: GENERATOR.normal([4]), "", ()),
    (printing, "StringFormat", ("PrintV2", "StringFormat")),
    (python, "PyFunc", ("PyFunc",)),
    (
        lambda x: tf.strings.length(tf.strings.as_string(x)),
        "AsString",
        ("AsString", "StringLength"),
    ),
    (scatter, "ResourceScatterNdUpdate", ("ResourceScatterNdUpdate",)),
]


@pytest.mark.parametrize(("fn", "refused", "on_host"), CASES)
def test_what_is_refused_moves_to_the_host_with_soft_placement(fn, refused, on_host):
    strict, soft = bridge(fn, X), bridge(fn, X, soft_device_placement=True)
    assert (strict.refused, strict.on_host) == (refused, ())
    assert (soft.refused, soft.on_host) == ("", on_host)
    told = (
        f"on the host, in each step: {', '.join(on_host)}" if on_host else "all of it for the TPU"
    )
    assert told in repr(soft) and (f"refused, {refused}" if refused else told) in repr(strict)


@pytest.mark.parametrize("wanted", [False, True])
def test_variables_and_the_setting_stay_as_they_were(wanted):
    def now():
        return tf.config.get_soft_device_placement()

    before = now(), bool(tf.function(now)())
    bridge(two_variables, X, soft_device_placement=wanted)
    bridge(scatter, X, soft_device_placement=wanted)
    assert (now(), bool(tf.function(now)())) == before == (True, False)
    assert TABLE.numpy().sum() == 32 and COUNT.numpy() == 0
