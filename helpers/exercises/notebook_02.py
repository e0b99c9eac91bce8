"""The exercises of notebook 02, the rules of XLA."""

import numpy as np
import tensorflow as tf

from helpers.exercises import Wrong, check_compiles, check_table, hlo, returned
from helpers.xla.compare import compare

_ASKED = {
    "tf.where(x > 0, x, 0)": lambda x: tf.where(x > 0, x, 0.0),
    "tf.where(x > 0)": lambda x: tf.where(x > 0),
    "tf.zeros([n])": lambda x: tf.zeros([tf.cast(x[0], tf.int32)]),
    "tf.reduce_sum(x[x > 0])": lambda x: tf.reduce_sum(x[x > 0]),
    "tf.math.top_k(x, 2).values": lambda x: tf.math.top_k(x, 2).values,
}


def _check_shapes(answer: object) -> str:
    truth = {}
    for text, fn in _ASKED.items():
        row = compare(fn, tf.TensorSpec([8]))["XLA:CPU"]
        bounded = any("<=" in shape for shape in row.shapes)
        right = "refused" if row.refused_by else "bounded" if bounded else "static"
        truth[text] = (right, "Does the size of its *result* depend on a value?")
    check_table(answer, truth)
    return "All five: only the size of the result counts, not what happens on the way to it."


def _check_clip(answer: object) -> str:
    plain = tf.autograph.experimental.do_not_convert(answer)
    spec = tf.TensorSpec([2])
    for vector, expected in (([3.0, 4.0], [0.6, 0.8]), ([0.3, 0.4], [0.3, 0.4])):
        given = returned(answer(tf.constant(vector)))
        if not np.allclose(given, expected, atol=1e-5):
            raise Wrong(f"For {vector} it should give {expected}, not {np.round(given, 4)}.")
    if not np.allclose(answer(tf.zeros([2])), [0.0, 0.0]):
        raise Wrong("A zero vector must stay zero: 0/0 gives nan, and both sides are computed.")
    check_compiles(plain, spec)
    if "conditional(" in hlo(plain, spec):
        raise Wrong("XLA's program still holds a conditional: choose between numbers, not code.")
    return "Same numbers, no conditional in XLA's program, and no AutoGraph needed."


_LOGITS = tf.constant([[2.0, 1, 0], [0, 3, 1], [1, 0, 5], [4, 0, 0]])


def _check_masked_accuracy(answer: object) -> str:
    cases = (([0, 1, 0, 0], 0.75), ([0, 2, -100, -100], 0.5), ([-1, 1, 2, 1], 2 / 3))
    for labels, expected in cases:
        given = float(returned(answer(_LOGITS, tf.constant(labels))))
        if not np.isclose(given, expected, atol=1e-5):
            raise Wrong(f"For the labels {labels} it should be {expected:.3g}, not {given:.3g}.")
    given = float(returned(answer(_LOGITS, tf.fill([4], -100))))
    if given != 0.0:
        raise Wrong(f"Without any label it should be 0, not {given:.3g}.")
    check_compiles(answer, tf.TensorSpec([4, 3]), tf.TensorSpec([4], tf.int32))
    return "Right with all, some and no labels, and every shape in XLA's program is static."
