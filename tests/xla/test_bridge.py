"""What TensorFlow's TPU bridge refuses and leaves to the host, asked on a CPU."""

import numpy as np
import pytest
import tensorflow as tf

from helpers.xla.bridge import bridge

pytestmark = pytest.mark.slow

X = tf.TensorSpec([4])
TABLE = tf.Variable(tf.ones([8, 4]))
COUNT = tf.Variable(0, dtype=tf.int64)
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


# Function, what is refused, and what runs on the host with soft placement: by TensorFlow's list of
# operations that have a kernel for TPUs (the tensorflow-tpu package's registry, read 2026-11).
@pytest.mark.parametrize(
    ("fn", "refused", "on_host"),
    [
        (two_variables, "", ()),
        (lambda x: GENERATOR.normal([4]), "", ()),
        # Its size depends on a value: the bridge lets it through, XLA refuses it afterwards.
        (lambda x: tf.range(tf.cast(tf.reduce_max(x), tf.int32)), "", ()),
        (printing, "StringFormat", ("PrintV2", "StringFormat")),
        (python, "PyFunc", ("PyFunc",)),
        (scatter, "ResourceScatterNdUpdate", ("ResourceScatterNdUpdate",)),
    ],
)
def test_what_is_refused_moves_to_the_host_with_soft_placement(fn, refused, on_host):
    strict = bridge(fn, X)
    assert (strict.refused, strict.on_host) == (refused, ())
    soft = bridge(fn, X, soft_device_placement=True)
    assert (soft.refused, soft.on_host) == ("", on_host)
    # Variables and the setting stay as they were.
    assert TABLE.numpy().sum() == 32
    assert COUNT.numpy() == 0
    setting = tf.config.get_soft_device_placement
    assert setting()
    assert not tf.function(setting)()
