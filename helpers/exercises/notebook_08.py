"""The exercises of notebook 08, the preflight."""

import numpy as np
import tensorflow as tf

from helpers.exercises import Wrong, check_table, read, returned
from tpu_preflight.program import NotCompilable, export

_FOUND_BY = {
    "a loss of nan from a label of -100": 4,
    "a global batch of 100 on a v5e-8": 3,
    "numpy_function in the model": 1,
    "a metric made outside strategy.scope()": 5,
    "rows padded to the longest of each batch": 2,
    "12 GiB of activations on a v2-8": 6,
}


def _check_found_by(answer: object) -> str:
    why = "Look at the headings of a report."
    check_table(answer, {case: (number, why) for case, number in _FOUND_BY.items()})
    return "All six. Of these, check 4 alone computes with your data's values."


def _check_mean_loss(answer: object) -> str:
    logits = tf.constant([[2.0, 0.0], [0.0, 1.0], [3.0, 3.0]])
    labels = tf.constant([0, 1, -100])
    returned(answer(logits, tf.constant([0, 1, 1])))
    try:
        program = export(answer, tf.TensorSpec([3, 2]), tf.TensorSpec([3], tf.int32))
    except NotCompilable as error:
        raise Wrong(f"It does not compile: {error.what}") from error
    if program.bounded:
        shape = program.bounded[0].shape
        raise Wrong(f"It compiles, but {shape} depends on values. Keep the full size.")
    compiled = tf.function(answer, jit_compile=True)
    expected = float(np.mean([np.log1p(np.exp(-2.0)), np.log1p(np.exp(-1.0))]))
    given = float(returned(compiled(logits, labels)))
    if not np.isclose(given, expected, atol=1e-5):
        raise Wrong(f"With labels 0, 1 and -100 the mean is {expected:.4f}, not {given:.4f}.")
    empty = float(compiled(logits, tf.constant([-100, -100, -100])))
    if empty != 0.0:
        raise Wrong(f"A batch without labels must give 0, not {empty:.4g}: look at 0/0.")

    @tf.function(jit_compile=True)
    def slope(logits: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            tape.watch(logits)
            loss = answer(logits, labels)
        return tape.gradient(loss, logits)

    if not np.isfinite(slope(logits)).all():
        raise Wrong("The value is right, but the gradient holds nan: make the label valid first.")
    return "Static shapes, the right mean, a finite gradient, and 0 for a batch without labels."


EXERCISES = read("08", _check_found_by, _check_mean_loss)
