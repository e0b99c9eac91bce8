"""The exercises of notebook 03, padding and packing."""

import itertools

import numpy as np
import tensorflow as tf

from helpers.exercises import Wrong, check_compiles, returned


def _check_may_attend(answer: object) -> str:
    segments = np.array([[1, 1, 2, 2, 2, 0], [1, 2, 3, 0, 0, 0]], np.int32)
    given = np.asarray(returned(answer(tf.constant(segments))))
    if given.shape != (2, 6, 6) or given.dtype != bool:
        raise Wrong(
            f"For segments [2, 6] it must be bool [2, 6, 6], not {given.dtype} {[*given.shape]}."
        )
    for row in range(2):
        for at, to in np.ndindex(6, 6):
            one, other = segments[row, at], segments[row, to]
            if one and given[row, at, to] != (one == other):
                raise Wrong(
                    f"In the row {segments[row].tolist()} position {at} "
                    f"{'must not' if one != other else 'must'} attend to position {to}."
                )
    if not given.any(-1).all():
        raise Wrong("A position of padding attends to nothing: with -inf its softmax would be 0/0.")
    check_compiles(answer, tf.TensorSpec([2, 6], tf.int32))
    return "Each text sees itself and nothing else, and no softmax is empty."


def _check_in_buckets(answer: object) -> str:
    lengths, seen = (5, 9, 2, 6, 5, 1, 7, 3, 9, 4, 5, 8, 2), []
    texts = [list(range(10 * n + 1, 10 * n + 1 + length)) for n, length in enumerate(lengths)]
    dataset = tf.data.Dataset.from_generator(
        lambda: texts, output_signature=tf.TensorSpec([None], tf.int32)
    )
    given = returned(answer(dataset, [5, 9], 3))
    if not isinstance(given, tf.data.Dataset) or not isinstance(given.element_spec, tuple):
        raise Wrong("Return a tf.data.Dataset of pairs: (input_ids, attention_mask).")
    for ids, mask in itertools.islice(given.as_numpy_iterator(), len(texts)):
        if ids.shape not in ((3, 5), (3, 9)) or mask.shape != ids.shape:
            shape = f"[{', '.join(map(str, ids.shape))}]"
            raise Wrong(f"With edges 5 and 9, a batch of 3 can't have the shape {shape}.")
        for row, real in zip(ids.tolist(), mask.astype(int).tolist(), strict=True):
            text = next((text for text in texts if row[: len(text)] == text), None)
            if not text or any(row[len(text) :]):
                raise Wrong(f"The row {row} is not one text, then 0.")
            if len(row) == 9 and len(text) <= 5:
                raise Wrong(f"A text of {len(text)} tokens stands in a row of 9; 5 would do.")
            if real != [1] * len(text) + [0] * (len(row) - len(text)):
                raise Wrong(f"The mask of {row} must be 1 on tokens and 0 on padding, not {real}.")
            seen.append(text[0])
    if len(seen) != 9 or len({*seen}) != 9:
        raise Wrong(
            f"8 texts fit 5, 5 more fit 9: whole batches of 3 hold 9 texts, not {len(seen)}."
        )
    return "Two shapes for texts of every length, and no batch that is not full."
