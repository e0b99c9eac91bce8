# ruff: noqa: ANN001, ANN201, D103
"""What the expressions of ``cases.toml`` can name: constants, and functions of statements."""

import numpy as np
import tensorflow as tf
import tf_keras
from tf_keras import layers  # noqa: F401 - named by cases

_K1, _K2 = np.ones([3, 3, 2], "float32"), np.ones([3, 3, 3, 2], "float32")


# --- functions that need statements ---------------------------------------------------------------


def if_on_a_tensor(x):
    if tf.reduce_sum(x) > 10:
        x = x / 2.0
    return x


@tf.autograph.experimental.do_not_convert
def if_without_autograph(x):
    if tf.reduce_sum(x) > 10:
        x = x / 2.0
    return x


def while_on_a_tensor(x):
    while tf.reduce_sum(x) > 1.0:
        x = x / 2.0
    return x


def for_over_range_n(x, n):
    for i in tf.range(n):
        x = x + tf.cast(i, tf.float32)
    return x


def for_over_static_range(x):
    for i in tf.range(4):
        x = x + tf.cast(i, tf.float32)
    return x


def for_over_rows(x):
    total = tf.zeros([8])
    for row in x:
        total += row
    return total


def break_in_a_loop(x):
    for i in tf.range(8):
        if x[i] > 0.5:
            break
        x = x * 0.9
    return x


def assert_statement(x):
    assert tf.reduce_sum(x) > 0.0
    return x


def python_print(x):
    print(x)  # noqa: T201 - the case
    return x + 1.0


def list_append_in_a_loop(x):
    found = []
    for i in range(4):
        found.append(x * i)
    return tf.stack(found)


def array_of_fixed_size(x):
    array = tf.TensorArray(tf.float32, size=4)
    for i in tf.range(4):
        array = array.write(i, x[i])
    return array.stack()


def array_that_grows(x):
    array = tf.TensorArray(tf.float32, size=0, dynamic_size=True)
    for i in range(4):
        array = array.write(i, x[i])
    return array.stack()


def array_that_grows_n_times(x, n):
    array = tf.TensorArray(tf.float32, size=0, dynamic_size=True)
    for i in tf.range(n):
        array = array.write(i, x[i])
    return array.stack()


def edit_distance(a, b):
    row = tf.range(9)
    for i in tf.range(8):
        new = tf.TensorArray(tf.int32, size=9)
        last = i + 1
        new = new.write(0, last)
        for j in tf.range(8):
            cost = tf.cast(a[i] != b[j], tf.int32)
            last = tf.minimum(tf.minimum(last + 1, row[j + 1] + 1), row[j] + cost)
            new = new.write(j + 1, last)
        row = new.stack()
    return row[8]


def masked_mean_loss(logits, labels):
    keep = labels >= 0
    labels, logits = tf.boolean_mask(labels, keep), tf.boolean_mask(logits, keep)
    return tf.reduce_mean(
        tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    )


def masked_mean_loss_static(logits, labels):
    keep = tf.cast(labels >= 0, tf.float32)
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
        labels=tf.maximum(labels, 0), logits=logits
    )
    return tf.reduce_sum(losses * keep) / tf.reduce_sum(keep)


# --- functions with state -------------------------------------------------------------------------


def random_generator():
    generator = tf.random.Generator.from_seed(1)
    return lambda x: x + generator.normal([8])


def lookup_table():
    keys, values = tf.range(4), tf.range(4)
    initializer = tf.lookup.KeyValueTensorInitializer(keys, values)
    table = tf.lookup.StaticHashTable(initializer, -1)
    return lambda x: table.lookup(x)


def variable_assign():
    variable = tf.Variable(tf.zeros([8]))
    return lambda x: variable.assign_add(x)


def variable_scatter():
    variable = tf.Variable(tf.zeros([8, 8]))
    return lambda x, i: variable.scatter_nd_add(i[:, None], x)


def variable_of_another_shape():
    variable = tf.Variable(tf.zeros([4]), shape=tf.TensorShape([None]))
    return lambda x: variable.assign(x) + 0.0


def train_step():
    model = tf_keras.Sequential([tf_keras.layers.Dense(16, "relu"), tf_keras.layers.Dense(1)])
    model.compile(tf_keras.optimizers.Adam(), "mse", metrics=["mae"])
    model.build((8, 8))
    return lambda x, y: model.train_step((x, y))


def train_step_of_embeddings():
    model = tf_keras.Sequential([tf_keras.layers.Embedding(50, 8), tf_keras.layers.Dense(1)])
    model.compile(tf_keras.optimizers.AdamW(), "mse")
    model.build((4, 7))
    return lambda x, y: model.train_step((x, y))
