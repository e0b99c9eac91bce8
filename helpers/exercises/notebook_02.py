"""The exercises of notebook 02, the rules of XLA."""

import numpy as np
import tensorflow as tf

from helpers.exercises import Wrong, check_compiles, hlo, returned

# A vector, and what it is when its norm is at most 1.
CLIPPED = [
    ([3.0, 4.0], [0.6, 0.8]),
    ([0.3, 0.4], [0.3, 0.4]),
    ([[0.0, 3], [4, 0]], [[0.0, 0.6], [0.8, 0]]),
    ([0.0, 0.0], [0.0, 0.0]),
]


def _check_clip(answer: object) -> str:
    without_autograph = tf.autograph.experimental.do_not_convert(answer)
    for vector, expected in CLIPPED:
        result = np.asarray(returned(answer(tf.constant(vector))))
        if result.shape != np.shape(expected) or not np.allclose(result, expected, atol=1e-5):
            raise Wrong(f"For {vector} it should give {expected}, not {np.round(result, 4)}.")
    # AutoGraph would turn an `if` into an operation that holds both branches.
    check_compiles(without_autograph, tf.TensorSpec([2]))
    if "conditional(" in hlo(without_autograph, tf.TensorSpec([2])):
        raise Wrong("XLA's program still holds a conditional: choose between numbers, not code.")
    return "Same numbers, no conditional in XLA's program, and no AutoGraph needed."


LENGTHS = (3, 32, 1, 7, 12, 5, 2, 9, 4, 6)


def _read_batches(answer: object, last_id: int = 1) -> tuple[list, list]:
    """Give ten texts of ids 1, 2, 3, … to an answer; ``last_id`` ends each of them.

    Returns ids and masks of its batches.
    """
    rows = tf.ragged.constant([[*range(1, n), last_id] for n in LENGTHS], dtype=tf.int32)
    # Of ragged rows, map makes tensors.
    texts = tf.data.Dataset.from_tensor_slices(rows).map(lambda row: row)
    ids = []
    masks = []
    for batch in returned(answer(texts)):
        batch_ids, batch_mask = batch
        ids.append(np.asarray(batch_ids))
        masks.append(np.asarray(batch_mask))
    return ids, masks


def _check_make_batches(answer: object) -> str:
    ids, masks = _read_batches(answer)
    shapes = [array.shape for array in (*ids, *masks)]
    if shapes != [(4, 32)] * 4:
        raise Wrong(f"Of ten texts, the shapes of ids and masks are {shapes}.")
    # Of ten texts, two whole batches of four: the last two are left out.
    padded = np.zeros([8, 32], int)
    for row, length in zip(padded, LENGTHS[:8], strict=True):
        row[:length] = [*range(1, length), 1]
    if not np.array_equal(np.concatenate(masks), np.sign(padded)):
        raise Wrong("The mask is 1 at a token and 0 at padding.")
    if ids[0].dtype.kind != "i" or not np.array_equal(np.concatenate(ids), padded):
        raise Wrong("The ids are whole numbers, in their order, and 0 at padding.")
    # The table has 100 rows, so an id of 100 must raise an error.
    try:
        ids, _ = _read_batches(answer, last_id=100)
    except Exception:  # of whatever type
        return "One shape, the right mask, and no id beyond the table reaches the step."
    if not any((batch == 100).any() for batch in ids):
        raise Wrong(
            "A text with the id 100 is changed or left out, and the fault in the data stays "
            "hidden: raise an error instead."
        )
    raise Wrong("A text with the id 100 passes, and would read another word's row.")
