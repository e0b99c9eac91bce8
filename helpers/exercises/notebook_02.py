"""The exercises of notebook 02, the rules of XLA."""

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from helpers.exercises import Wrong, check_compiles, filled, read, returned
from helpers.xla.compare import compare

_QUESTIONS = (
    (lambda x: tf.where(x > 0, x, 0.0), "tf.where(x > 0, x, 0)"),
    (lambda x: tf.where(x > 0), "tf.where(x > 0)"),
    (lambda x: tf.zeros([tf.cast(x[0], tf.int32)]), "tf.zeros([n])"),
    (lambda x: tf.reduce_sum(x[x > 0]), "tf.reduce_sum(x[x > 0])"),
    (lambda x: tf.math.top_k(x, 2).values, "tf.math.top_k(x, 2).values"),
)


def _hlo(fn: Callable, *specs: tf.TensorSpec) -> str:
    return tf.function(fn, jit_compile=True).experimental_get_compiler_ir(*specs)(stage="hlo")


def _truth() -> dict[str, str]:
    """Ask XLA itself; nothing here is written down."""
    truth = {}
    for fn, text in _QUESTIONS:
        row = compare(fn, tf.TensorSpec([8]))["XLA:CPU"]
        bounded = any("<=" in shape for shape in row.shapes)
        truth[text] = "refused" if row.refused_by else "bounded" if bounded else "static"
    return truth


def _check_shapes(answer: object) -> str:
    truth = _truth()
    given = filled(answer, truth)
    wrong = [text for text in truth if given[text] != truth[text]]
    if wrong:
        raise Wrong(
            f"{len(truth) - len(wrong)} of {len(truth)} are right. Look again at {wrong[0]}: "
            "does the size of its *result* depend on a value?"
        )
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
    if "conditional(" in _hlo(plain, spec):
        raise Wrong("XLA's program still holds a conditional: choose between numbers, not code.")
    return "Same numbers, no conditional in XLA's program, and no AutoGraph needed."


_LOGITS = tf.constant([[2.0, 1, 0], [0, 3, 1], [1, 0, 5], [4, 0, 0]])


def _check_accuracy(answer: object) -> str:
    cases = (([0, 1, 0, 0], 0.75), ([0, 2, -100, -100], 0.5), ([-100, 1, 2, 1], 2 / 3))
    for labels, expected in cases:
        given = float(returned(answer(_LOGITS, tf.constant(labels))))
        if not np.isclose(given, expected, atol=1e-5):
            raise Wrong(f"For the labels {labels} it should be {expected:.3g}, not {given:.3g}.")
    given = float(returned(answer(_LOGITS, tf.fill([4], -100))))
    if given != 0.0:
        raise Wrong(f"Without any label it should be 0, not {given:.3g}.")
    specs = tf.TensorSpec([4, 3]), tf.TensorSpec([4], tf.int32)
    check_compiles(answer, *specs)
    if "<=" in _hlo(answer, *specs):
        raise Wrong("The number is right, but XLA's program holds a bounded shape (<=).")
    return "Right with all, some and no labels, and every shape in XLA's program is static."


def _check_pad(answer: object) -> str:
    for sequences, multiple, width in (
        ([[5, 6, 7], [8]], 4, 4),
        ([[1] * 9, [2] * 3], 4, 12),
        ([[1] * 8], 8, 8),
    ):
        ids, mask = map(np.asarray, returned(answer(sequences, multiple)))
        if ids.shape != (len(sequences), width) or mask.shape != ids.shape:
            raise Wrong(
                f"Lengths {[len(s) for s in sequences]} with multiple={multiple} make "
                f"{len(sequences)} rows of {width}; yours are {ids.shape} and {mask.shape}."
            )
        for row, (ids_row, mask_row) in zip(sequences, zip(ids, mask, strict=True), strict=True):
            if mask_row.tolist() != [1] * len(row) + [0] * (width - len(row)):
                raise Wrong("The mask must be 1 at every token and 0 at every padding place.")
            if ids_row[: len(row)].tolist() != row or ids_row[len(row) :].any():
                raise Wrong("The ids must come first in each row, unchanged, then zeros.")
    return "Ids, mask and width are right, also where the longest already fits."


EXERCISES = read("02", _check_shapes, _check_clip, _check_accuracy, _check_pad)
