"""The exercises of notebook 01, the compiler."""

import numpy as np
import tensorflow as tf

from helpers.exercises import Exercise, Wrong, returned
from helpers.tpu.layout import as_written
from helpers.xla.compare import compare, hlo
from helpers.xla.fusion import executed, kernels


def _swish(x: tf.Tensor) -> tf.Tensor:
    return x / (1.0 + tf.exp(-x))


def _truth() -> dict[str, float]:
    """Ask TensorFlow and XLA themselves; nothing here is written down."""
    x = tf.ones([512, 256])
    n = 4 * 512 * 256
    program = kernels(hlo(_swish, x).optimized)
    eager = executed(_swish, x)
    # Every operation of this function writes one tensor; all read one, but the division reads two.
    moved = sum(3 if name == "RealDiv" else 2 for name in eager)
    return {
        "kernels eager": len(eager),
        "kernels XLA": len(program.kernels),
        "times less moved": moved * n / program.bytes_moved,
    }


def _check_swish(answer: object) -> str:
    given, truth = answer(), _truth()
    if not isinstance(given, dict) or set(given) != set(truth):
        raise Wrong("Return the dictionary with its three keys unchanged, and a number for each.")
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
    row = compare(answer, tf.TensorSpec([4, 6]))["XLA:CPU"]
    if row.refused_by:
        raise Wrong(f"It is refused by {row.refused_by}: {row.message}")
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


EXERCISES = {
    "01-1": Exercise(
        stub='''def swish_costs():
    """What does x / (1 + exp(-x)) cost on a large x, eagerly and under XLA?

    Memory traffic counts each tensor that is read or written; single numbers count nothing.
    """
    raise NotImplementedError
    return {"kernels eager": None, "kernels XLA": None, "times less moved": None}
''',
        answer="swish_costs",
        check=_check_swish,
        hints=(
            "Write the formula as single operations, one per line, each with its own result.",
            "Four operations: minus, exp, plus 1, divide. None of them mixes different places "
            "of x, so XLA needs one pass: read x, write the result.",
            "Eagerly, three operations read one tensor and write one; the division reads two "
            "and writes one. That is 9 times x, against 2 times x.",
        ),
        solution='''def swish_costs():
    """What does x / (1 + exp(-x)) cost on a large x, eagerly and under XLA?

    Memory traffic counts each tensor that is read or written; single numbers count nothing.
    """
    return {"kernels eager": 4, "kernels XLA": 1, "times less moved": 9 / 2}
''',
        wrong={
            "count them": """\
def swish_costs():
    return {"kernels eager": 3, "kernels XLA": 1, "times less moved": 4.5}
""",
            "share one pass": """\
def swish_costs():
    return {"kernels eager": 4, "kernels XLA": 2, "times less moved": 4.5}
""",
            "in units of x": """\
def swish_costs():
    return {"kernels eager": 4, "kernels XLA": 1, "times less moved": 4}
""",
            "keys unchanged": "def swish_costs():\n    return 4\n",
        },
    ),
    "01-2": Exercise(
        stub='''def log_sum_exp(x):
    """The log of the sum of exp over the last dimension, also where exp overflows.

    Change this: tf.math.log(tf.reduce_sum(tf.exp(x), axis=-1))
    """
    raise NotImplementedError
''',
        answer="log_sum_exp",
        check=_check_log_sum_exp,
        hints=(
            "The safe softmax takes the same number away from all of a row. What does that do to "
            "the logarithm of the sum?",
            "log(sum(exp(x))) = m + log(sum(exp(x - m))) for every m; take the row's maximum.",
            "Keep the dimension when you take the maximum, so that it can be subtracted, and drop "
            "it with tf.squeeze(m, -1) before you add it back.",
        ),
        solution='''def log_sum_exp(x):
    """The log of the sum of exp over the last dimension, also where exp overflows.

    Change this: tf.math.log(tf.reduce_sum(tf.exp(x), axis=-1))
    """
    largest = tf.reduce_max(x, axis=-1, keepdims=True)
    log_sum = tf.math.log(tf.reduce_sum(tf.exp(x - largest), axis=-1))
    return tf.squeeze(largest, -1) + log_sum
''',
        wrong={
            "[1000.0, 1000.0]": """\
def log_sum_exp(x):
    return tf.math.log(tf.reduce_sum(tf.exp(x), axis=-1))
""",
            "For usual numbers": """\
def log_sum_exp(x):
    m = tf.reduce_max(x, axis=-1, keepdims=True)
    return tf.math.log(tf.reduce_sum(tf.exp(x - m), axis=-1))
""",
            "4 numbers": """\
def log_sum_exp(x):
    m = tf.reduce_max(x, axis=-1, keepdims=True)
    total = tf.reduce_sum(tf.exp(x - m), axis=-1, keepdims=True)
    return m + tf.math.log(total)
""",
            "[-1000.0, -1000.0]": """\
def log_sum_exp(x):
    m = tf.minimum(tf.reduce_max(x, axis=-1, keepdims=True), 1000.0)
    m = tf.maximum(m, 0.0)
    total = tf.math.log(tf.reduce_sum(tf.exp(x - m), axis=-1))
    return tf.squeeze(m, -1) + total
""",
        },
    ),
    "01-3": Exercise(
        stub='''def sum_of_batches(batches):
    """The sum of all values in a list of bfloat16 tensors, right to one part in a thousand."""
    raise NotImplementedError
''',
        answer="sum_of_batches",
        check=_check_running_sum,
        hints=(
            "Two things can be rounded here: the sum of one batch, and the running total.",
            "Cast each batch to float32 before you sum it, and keep the total in float32.",
        ),
        solution='''def sum_of_batches(batches):
    """The sum of all values in a list of bfloat16 tensors, right to one part in a thousand."""
    total = tf.constant(0.0)
    for batch in batches:
        total += tf.reduce_sum(tf.cast(batch, tf.float32))
    return total
''',
        wrong={
            "kept in bfloat16": """\
def sum_of_batches(batches):
    total = tf.constant(0.0, tf.bfloat16)
    for batch in batches:
        total += tf.reduce_sum(batch)
    return total
""",
            "rounded before it was added": """\
def sum_of_batches(batches):
    return sum(float(tf.reduce_sum(batch)) for batch in batches)
""",
        },
    ),
    "01-4": Exercise(
        stub='''def padded_vocabulary(size):
    """The smallest vocabulary of at least ``size`` entries that a TPU needs not pad."""
    raise NotImplementedError
''',
        answer="padded_vocabulary",
        check=_check_round_up,
        hints=(
            "The vocabulary is a dimension of the embedding [vocabulary, width] and of the logits "
            "[tokens, vocabulary]. Which multiple suits both places?",
            "A multiple of 128 is a multiple of 8 as well. Round up with whole numbers: "
            "-(-a // b) is a / b, rounded up.",
        ),
        solution='''def padded_vocabulary(size):
    """The smallest vocabulary of at least ``size`` entries that a TPU needs not pad."""
    return -(-size // 128) * 128
''',
        wrong={
            "may be lost": "def padded_vocabulary(size):\n    return size // 128 * 128\n",
            "still pads it": "def padded_vocabulary(size):\n    return -(-size // 8) * 8\n",
            "there is a smaller size": """\
def padded_vocabulary(size):
    return (size // 128 + 1) * 128
""",
        },
    ),
}
