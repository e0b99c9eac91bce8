"""The exercises of notebook 01, the compiler."""

import numpy as np
import tensorflow as tf

from helpers.exercises import Wrong, check_compiles, filled, read, returned
from helpers.xla.fusion import executed, kernels
from helpers.xla.layout import as_written


def _truth() -> dict[str, float]:
    """Ask TensorFlow and XLA themselves; nothing here is written down."""
    x = tf.ones([512, 256])
    n = 4 * 512 * 256
    swish = lambda x: x / (1.0 + tf.exp(-x))  # noqa: E731
    compiled = tf.function(swish, jit_compile=True).experimental_get_compiler_ir(x)
    program = kernels(compiled(stage="optimized_hlo"))
    eager = executed(swish, x)
    # Every operation of this function writes one tensor; all read one, but the division reads two.
    moved = sum(3 if name == "RealDiv" else 2 for name in eager)
    return {
        "kernels eager": len(eager),
        "kernels XLA": len(program.kernels),
        "times less moved": moved * n / program.bytes_moved,
    }


def _check_swish(answer: object) -> str:
    truth = _truth()
    given = filled(answer, truth)
    for key, expected in truth.items():
        if given[key] is None or not np.isclose(float(given[key]), expected, atol=0.01):
            about = {
                "kernels eager": "each operation of the formula runs by itself: count them",
                "kernels XLA": "all are elementwise, so which of them can share one pass?",
                "times less moved": "add up reads and writes in units of x, then divide",
            }[key]
            raise Wrong(f"{key!r} is not {given[key]}: {about}.")
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
    for row, value in (([1000.0, 1000.0], 1000.6931), ([-1000.0, -1000.0], -999.3069)):
        given = float(returned(answer(tf.constant([row])))[0])
        if not np.isclose(given, value, atol=1e-3):
            raise Wrong(f"For {row} it should give {value}, not {given}.")
    check_compiles(answer, tf.TensorSpec([4, 6]))
    return "Right for usual, very large and very small numbers, and XLA compiles it."


def _check_running_sum(answer: object) -> str:
    batches = [tf.ones([100], tf.bfloat16) for _ in range(30)]
    given = float(returned(answer(batches)))
    if not np.isclose(given, 3000.0, rtol=1e-3):
        raise Wrong(
            f"30 batches of 100 ones are 3000, not {given:g}: a total kept in bfloat16 has 8 bits "
            "of precision."
        )
    odd = [tf.ones([257], tf.bfloat16) for _ in range(50)]
    given = float(returned(answer(odd)))
    if not np.isclose(given, 50 * 257, rtol=1e-3):
        raise Wrong(
            f"50 batches of 257 ones are {50 * 257}, not {given:g}: the sum of each batch was "
            "rounded before it was added."
        )
    return "Right to one part in a thousand: summed and kept in float32."


def _check_round_up(answer: object) -> str:
    for size in (30522, 119547, 128, 1, 1000, 32000):
        given = returned(answer(size))
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


EXERCISES = read("01", _check_swish, _check_log_sum_exp, _check_running_sum, _check_round_up)
