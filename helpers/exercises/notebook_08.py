"""The exercises of notebook 08, the preflight."""

import numpy as np
import tensorflow as tf

from helpers.exercises import Wrong, returned
from tpu_preflight.program import NotCompilable, export


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
