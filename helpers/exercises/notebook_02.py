"""The exercises of notebook 02, the rules of XLA."""

import numpy as np
import tensorflow as tf

from helpers.exercises import Wrong, check_compiles, hlo, returned


def _check_clip(answer: object) -> str:
    plain = tf.autograph.experimental.do_not_convert(answer)
    long, short, zeros = ([[0.0, 3], [4, 0]], [[0.0, 0.6], [0.8, 0]]), [0.3, 0.4], [0.0, 0.0]
    for vector, expected in (([3.0, 4.0], [0.6, 0.8]), (short, short), long, (zeros, zeros)):
        given = np.asarray(returned(answer(tf.constant(vector))))
        if given.shape != np.shape(expected) or not np.allclose(given, expected, atol=1e-5):
            raise Wrong(
                f"For {vector} it should give {expected}, not {given.astype(float).round(4)}."
            )
    check_compiles(plain, tf.TensorSpec([2]))
    if "conditional(" in hlo(plain, tf.TensorSpec([2])):
        raise Wrong("XLA's program still holds a conditional: choose between numbers, not code.")
    return "Same numbers, no conditional in XLA's program, and no AutoGraph needed."


def _check_last_token(answer: object) -> str:
    for lengths in ([2, 4, 1], [3, 1]):
        x = np.arange(8.0 * len(lengths), dtype=np.float32).reshape(-1, 4, 2)
        expected = x[range(len(x)), np.subtract(lengths, 1)]
        given = np.asarray(returned(answer(tf.constant(x), tf.constant(lengths))))
        if given.shape != expected.shape or not np.allclose(given, expected):
            raise Wrong(f"For the lengths {lengths} it is not the vector of each last token.")
    check_compiles(answer, tf.TensorSpec([3, 4, 2]), tf.TensorSpec([3], tf.int32))
    return "Each row's last token, and every shape in XLA's program is static."


_LOGITS = tf.constant([[2.0, 1, 0], [0, 3, 1], [1, 0, 5], [4, 0, 0]])


def _check_masked_accuracy(answer: object) -> str:
    cases = (([0, 1, 0, 0], 0.75), ([0, 2, -100, -100], 0.5), ([-1, 1, 2, 1], 2 / 3))
    for labels, expected in (*cases, ([-100] * 4, 0.0)):
        given = float(returned(answer(_LOGITS, tf.constant(labels))))
        if not np.isclose(given, expected, atol=1e-5):
            raise Wrong(f"For the labels {labels} it should be {expected:.3g}, not {given:.3g}.")
    check_compiles(answer, tf.TensorSpec([4, 3]), tf.TensorSpec([4], tf.int32))
    return "Right with all, some and no labels, and every shape in XLA's program is static."


def _read(answer: object, longest: tuple[int, ...], last: int = 1) -> list:
    rows = [[*range(1, n), last] for n in longest]
    texts = tf.data.Dataset.from_generator(
        lambda: rows, output_signature=tf.TensorSpec([None], tf.int32)
    )
    return [[np.asarray(part) for part in pair] for pair in returned(answer(texts))]


def _check_make_batches(answer: object) -> str:
    lengths = (3, 32, 1, 7, 12, 5, 2, 9, 4, 6)
    ids, masks = zip(*_read(answer, lengths), strict=True)
    for what, arrays in (("ids", ids), ("masks", masks)):
        if [array.shape for array in arrays] != [(4, 32), (4, 32)]:
            raise Wrong(f"Of ten texts, the shapes of the {what} are {[a.shape for a in arrays]}.")
    padded = [[*range(1, n), 1, *[0] * (32 - n)] for n in lengths[:8]]
    if not np.array_equal(np.concatenate(masks), np.sign(padded)):
        raise Wrong("The mask is 1 at a token and 0 at padding.")
    if ids[0].dtype.kind != "i" or not np.array_equal(np.concatenate(ids), padded):
        raise Wrong("The ids are whole numbers, in their order, and 0 at padding.")
    for unknown in (100, 30_000):
        try:
            _read(answer, lengths, last=unknown)
        except Exception:  # of whatever type
            continue
        raise Wrong(f"A text with the id {unknown} passes, and would read another word's row.")
    return "One shape, the right mask, and no id beyond the table reaches the step."
