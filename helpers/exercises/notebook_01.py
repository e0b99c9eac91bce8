"""The exercises of notebook 01, the compiler."""

import numpy as np
import tensorflow as tf

from helpers.exercises import Wrong, check_compiles, check_table, returned
from helpers.xla.fusion import executed, kernels
from helpers.xla.layout import as_written


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


def _check_log_sum_exp(answer: object) -> str:
    rng = np.random.default_rng(1)
    usual = rng.normal(size=(4, 6)).astype(np.float32)
    expected = np.log(np.exp(usual.astype(np.float64)).sum(-1))
    given = np.asarray(returned(answer(tf.constant(usual))))
    if given.shape != (4,):
        raise Wrong(f"For 4 rows it should give 4 numbers, not the shape {list(given.shape)}.")
    if not np.allclose(given, expected, atol=1e-4):
        raise Wrong(f"For usual numbers the first row should give {expected[0]:.4f}.")
    rows, right = [[1000.0, 1000.0], [-1000.0, -1000.0]], [1000.6931, -999.3069]
    for row, value, given in zip(rows, right, answer(tf.constant(rows)), strict=True):
        if not np.isclose(given, value, atol=1e-3):
            raise Wrong(f"For {row} it should give {value}, not {given}.")
    check_compiles(answer, tf.TensorSpec([4, 6]))
    return "Right for usual, very large and very small numbers, and XLA compiles it."


def _check_padded_vocabulary(answer: object) -> str:
    for size in (30522, 119547, 128, 1, 1000, 32000):
        given = returned(answer(size))
        if not isinstance(given, (int, np.integer)):
            raise Wrong("A vocabulary has a whole number of entries: return an int.")
        if given < size:
            raise Wrong(f"{given} is less than {size}: no entry of the vocabulary may be lost.")
        if as_written([given, 768]).expansion > 1 or as_written([768, given]).expansion > 1:
            raise Wrong(
                f"{size} became {given}, and the TPU still pads it: it must fit wherever it stands "
                "among the last two dimensions."
            )
        if given - size >= 128:
            raise Wrong(f"{size} became {given}: there is a smaller size that the TPU won't pad.")
    return "The smallest size that is not padded, for every vocabulary tried."
