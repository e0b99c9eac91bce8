"""The exercises of notebook 01, the compiler."""

import numpy as np
import tensorflow as tf

from helpers.exercises import Wrong, check_table, returned
from helpers.xla.compilations import count_compilations
from helpers.xla.fusion import executed, kernels


def _check_swish_costs(answer: object) -> str:
    x = tf.ones([512, 256])
    swish = lambda x: x / (1.0 + tf.exp(-x))  # noqa: E731
    compiled = tf.function(swish, jit_compile=True).experimental_get_compiler_ir(x)
    program = kernels(compiled(stage="optimized_hlo"))
    eager = executed(swish, x)
    # Every operation of this function writes one tensor; all read one, but the division reads two.
    moved = 4 * 512 * 256 * sum(3 if name == "RealDiv" else 2 for name in eager)
    truth = {
        "kernels eager": (
            len(eager),
            "Each operation of the formula runs by itself: count them.",
        ),
        "kernels XLA": (
            len(program.kernels),
            "All are elementwise, so which of them can share one pass?",
        ),
        "times less moved": (
            round(moved / program.bytes_moved, 2),
            "Add up reads and writes in units of x, then divide.",
        ),
    }
    check_table(answer, truth)
    return "Measured with executed() and kernels(): the same three numbers."


def _check_make_step(answer: object) -> str:
    rng = np.random.default_rng(0)
    start, features, targets = (rng.normal(size=n) for n in ((3, 1), (8, 3), (8, 1)))
    weight = tf.Variable(start, dtype=tf.float32)
    step, compiled = returned(answer(weight, 0.1)), []
    given = [tf.constant(x, tf.float32) for x in (features, targets)]
    for _ in range(2):
        before = weight.numpy()
        with count_compilations() as seen:
            loss = returned(step(*given))
        compiled.append(seen.count)
        wrong = features @ before - targets
        if not np.allclose(loss, right := (wrong**2).mean(), atol=1e-4):
            raise Wrong(f"The loss before the step is {right:.4f}; it returned {float(loss):.4f}.")
        if not np.allclose(weight, before - 0.1 * 2 * features.T @ wrong / 8, atol=1e-4):
            raise Wrong("The weight has not moved by -learning_rate times the gradient.")
    if compiled[0] == 0:
        raise Wrong("The numbers are right, but XLA compiled nothing: where is jit_compile?")
    if compiled[1] > 0:
        raise Wrong("The second call compiled anew: make the compiled function once, outside.")
    return "The weight moved as it should, and XLA compiled one program for both calls."
