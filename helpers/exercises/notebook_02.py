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
            raise Wrong(f"For {vector} it should give {expected}, not {np.round(given, 4)}.")
    check_compiles(plain, tf.TensorSpec([2]))
    if "conditional(" in hlo(plain, tf.TensorSpec([2])):
        raise Wrong("XLA's program still holds a conditional: choose between numbers, not code.")
    return "Same numbers, no conditional in XLA's program, and no AutoGraph needed."


def _check_make_batches(answer: object) -> str:
    def read(last: int = 1) -> list:
        rows = tf.ragged.constant([[*range(1, n), last] for n in lengths], dtype=tf.int32)
        texts = tf.data.Dataset.from_tensor_slices(rows).map(lambda row: row)  # now tensors
        return [[np.asarray(part) for part in pair] for pair in returned(answer(texts))]

    lengths = (3, 32, 1, 7, 12, 5, 2, 9, 4, 6)
    ids, masks = zip(*read(), strict=True)
    if (shapes := [array.shape for array in (*ids, *masks)]) != [(4, 32)] * 4:
        raise Wrong(f"Of ten texts, the shapes of ids and masks are {shapes}.")
    padded = [[*range(1, n), 1, *[0] * (32 - n)] for n in lengths[:8]]
    if not np.array_equal(np.concatenate(masks), np.sign(padded)):
        raise Wrong("The mask is 1 at a token and 0 at padding.")
    if ids[0].dtype.kind != "i" or not np.array_equal(np.concatenate(ids), padded):
        raise Wrong("The ids are whole numbers, in their order, and 0 at padding.")
    try:
        read(last=100)
    except Exception:  # of whatever type
        return "One shape, the right mask, and no id beyond the table reaches the step."
    raise Wrong("A text with the id 100 passes, and would read another word's row.")
