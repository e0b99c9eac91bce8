"""The exercises of notebook 01, the compiler."""

import numpy as np
import tensorflow as tf

from helpers.exercises import Wrong, check_table, returned
from helpers.xla.compilations import count_compilations
from helpers.xla.fusion import executed, kernels


def _check_swish_costs(answer: object) -> str:
    x = tf.ones([512, 256])

    def swish(x: tf.Tensor) -> tf.Tensor:
        return x / (1.0 + tf.exp(-x))

    compiled = tf.function(swish, jit_compile=True).experimental_get_compiler_ir(x)
    program = kernels(compiled(stage="optimized_hlo"))
    operations = executed(swish, x)
    # Each operation of this function reads one tensor and writes one, but the division reads two.
    tensors = 2 * len(operations) + operations.count("RealDiv")
    bytes_moved = 4 * 512 * 256 * tensors
    truth = {
        "kernels eager": (
            len(operations),
            "Each operation of the formula runs by itself: count them.",
        ),
        "kernels XLA": (
            len(program.kernels),
            "All are elementwise, so which of them can share one pass?",
        ),
        "times less moved": (
            round(bytes_moved / program.bytes_moved, 2),
            "Add up reads and writes in units of x, then divide.",
        ),
    }
    check_table(answer, truth)
    return "Measured with executed() and kernels(): the same three numbers."


def _check_make_step(answer: object) -> str:
    rng = np.random.default_rng(0)
    weights = rng.normal(size=(3, 1))
    features = rng.normal(size=(8, 3))
    targets = rng.normal(size=(8, 1))
    variable = tf.Variable(weights, dtype=tf.float32)
    step = returned(answer(variable, 0.1))
    batch = tf.constant(features, tf.float32), tf.constant(targets, tf.float32)
    counts = []
    # Twice: a step that is made anew in each call is compiled again.
    for _ in range(2):
        weights = variable.numpy()
        with count_compilations() as compilations:
            loss = returned(step(*batch))
        counts.append(compilations.count)
        errors = features @ weights - targets
        expected = (errors**2).mean()
        if not np.allclose(loss, expected, atol=1e-4):
            raise Wrong(
                f"The loss before the step is {expected:.4f}; it returned {float(loss):.4f}."
            )
        gradient = 2 * features.T @ errors / 8
        if not np.allclose(variable, weights - 0.1 * gradient, atol=1e-4):
            raise Wrong("The weight has not moved by -learning_rate times the gradient.")
    if counts[0] == 0:
        raise Wrong("The numbers are right, but XLA compiled nothing: where is jit_compile?")
    if counts[1] > 0:
        raise Wrong("The second call compiled again: make the compiled function once, outside.")
    return "The weight moved as it should, and XLA compiled one program for both calls."
