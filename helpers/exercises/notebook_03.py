"""The exercises of notebook 03, padding and packing."""

import itertools

import numpy as np
import tensorflow as tf

from helpers.exercises import Wrong, check_compiles, returned


def _check_may_attend(answer: object) -> str:
    segments = np.array([[1, 1, 2, 2, 2, 0], [1, 2, 3, 0, 0, 0]], np.int32)
    mask = np.asarray(returned(answer(tf.constant(segments))))
    if mask.shape != (2, 6, 6) or mask.dtype != bool:
        raise Wrong(
            f"For segments [2, 6] it must be bool [2, 6, 6], not {mask.dtype} {[*mask.shape]}."
        )
    for row in range(2):
        for query, key in np.ndindex(6, 6):
            same_text = segments[row, query] == segments[row, key]
            is_padding = segments[row, query] == 0  # may attend to anything
            if not is_padding and mask[row, query, key] != same_text:
                must = "must" if same_text else "must not"
                raise Wrong(
                    f"In the row {segments[row].tolist()} position {query} "
                    f"{must} attend to position {key}."
                )
    if not mask.any(-1).all():
        raise Wrong("A position of padding attends to nothing: with -inf its softmax would be 0/0.")
    check_compiles(answer, tf.TensorSpec([2, 6], tf.int32))
    return "Each text sees itself and nothing else, and no softmax is empty."


LENGTHS = (5, 9, 2, 6, 5, 1, 7, 3, 9, 4, 5, 8, 2)


def _check_in_buckets(answer: object) -> str:
    # Text n holds 10n + 1, 10n + 2, …: each token says which text it is of.
    texts = [[*range(10 * n + 1, 10 * n + 1 + length)] for n, length in enumerate(LENGTHS)]
    dataset = tf.data.Dataset.from_generator(
        lambda: texts, output_signature=tf.TensorSpec([None], tf.int32)
    )
    batches = returned(answer(dataset, [5, 9], 3))
    if not isinstance(batches, tf.data.Dataset) or not isinstance(batches.element_spec, tuple):
        raise Wrong("Return a tf.data.Dataset of pairs: (input_ids, attention_mask).")
    text_starts = []
    # A dataset that repeats would never end.
    for ids, mask in itertools.islice(batches.as_numpy_iterator(), len(texts)):
        if ids.shape not in ((3, 5), (3, 9)) or mask.shape != ids.shape:
            shape = f"[{', '.join(map(str, ids.shape))}]"
            raise Wrong(f"With edges 5 and 9, a batch of 3 can't have the shape {shape}.")
        for row, row_mask in zip(ids.tolist(), mask.astype(int).tolist(), strict=True):
            _check_row(row, row_mask, texts)
            text_starts.append(row[0])
    # Batches that aren't full are dropped, and no text comes twice.
    if len(text_starts) != 9 or len(set(text_starts)) != 9:
        raise Wrong(
            f"8 texts fit 5, 5 more fit 9: whole batches of 3 hold 9 texts, not {len(text_starts)}."
        )
    return "Two shapes for texts of every length, and no batch that is not full."


def _check_row(row: list[int], mask: list[int], texts: list[list[int]]) -> None:
    # No text begins another, as each has numbers of its own.
    text = None
    for candidate in texts:
        if row[: len(candidate)] == candidate:
            text = candidate
            break
    if text is None or any(row[len(text) :]):
        raise Wrong(f"The row {row} is not one text, then 0.")
    if len(row) == 9 and len(text) <= 5:
        raise Wrong(f"A text of {len(text)} tokens is in a row of 9; 5 would do.")
    if mask != [1] * len(text) + [0] * (len(row) - len(text)):
        raise Wrong(f"The mask of {row} must be 1 on tokens and 0 on padding, not {mask}.")
