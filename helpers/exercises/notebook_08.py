"""The exercises of notebook 08, the preflight."""

import numpy as np
import tensorflow as tf

from helpers.exercises import Wrong, filled, read, returned
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
    given = filled(answer, _FOUND_BY)
    for case, number in _FOUND_BY.items():
        if given[case] != number:
            raise Wrong(f"{case}: it is not check {given[case]}. Look at the headings of a report.")
    return "All six. Of these, check 4 alone computes with your data's values."


def _check_mean_loss(answer: object) -> str:
    logits = tf.constant([[2.0, 0.0], [0.0, 1.0], [3.0, 3.0]])
    labels = tf.constant([0, 1, -100])
    specs = tf.TensorSpec([3, 2]), tf.TensorSpec([3], tf.int32)
    try:
        program = export(answer, *specs)
    except NotCompilable as error:
        if isinstance(error.__cause__, NotImplementedError):
            raise error.__cause__ from None
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


def _check_least_ms(answer: object) -> str:
    cases = {
        (197e12, 400e9, 197.0, 819.0): (1000.0, "compute"),
        (1e12, 10e9, 197.0, 819.0): (10e9 / 819e9 * 1e3, "memory"),
        (2.77e12, 26.3e9, 918.0, 1640.0): (26.3e9 / 1640e9 * 1e3, "memory"),
        (4e12, 1e9, 45.0, 700.0): (4e12 / 45e12 * 1e3, "compute"),
    }
    for arguments, (milliseconds, limit) in cases.items():
        given = answer(*arguments)
        if not isinstance(given, tuple) or len(given) != 2:
            raise Wrong('Return a pair: (milliseconds, "compute" or "memory").')
        flops, traffic, tflops, gb = arguments
        step = f"{flops:.3g} operations and {traffic:.3g} bytes at {tflops:g} TFLOP/s, {gb:g} GB/s"
        if not np.isclose(given[0], milliseconds, rtol=1e-6):
            raise Wrong(f"{step}: {milliseconds:.4g} ms, not {given[0]:.4g}.")
        if given[1] != limit:
            raise Wrong(f"{step}: bound by {limit}, not by {given[1]}.")
    return "The longer of the two, in milliseconds: the roofline of one chip."


EXERCISES = read("08", _check_found_by, _check_mean_loss, _check_least_ms)
