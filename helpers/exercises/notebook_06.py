"""The exercises of notebook 06, text to records."""

import numpy as np
import tensorflow as tf

from helpers.exercises import Wrong, check_compiles, returned


def _check_plan(answer: object) -> str:
    for case, wanted in {
        (1_000, 5.0, 8, 4, 400): (25, 3),
        (1_001, 5.0, 8, 4, 400): (26, 3),
        (10**9, 4.0, 128, 4, 10**8): (1_953_125, 11),
    }.items():
        given = answer(*case)
        if not isinstance(given, tuple) or len(given) != 2:
            raise Wrong("Give two numbers: return rows, shards.")
        names = ("text_bytes", "bytes_per_token", "row_length", "bytes_per_position", "shard_bytes")
        told = ", ".join(f"{name}={value:,}" for name, value in zip(names, case, strict=True))
        for what, mine, right in zip(("rows", "shards"), given, wanted, strict=True):
            if mine != right:
                raise Wrong(f"With {told} there are {right:,} {what}, not {mine:,}.")
    return "Rows round up, and a row is never cut between two shards."


def _records(rows: np.ndarray) -> tf.Tensor:
    """Write rows as the notebook's records, with one feature."""
    records = []
    for row in rows:
        record = tf.train.Example()
        ids = row.astype("<u2").tobytes()
        record.features.feature["input_ids"].bytes_list.value.append(ids)
        records.append(record.SerializeToString())
    return tf.constant(records)


def _check_parse_batch(answer: object) -> str:
    rows = np.arange(24, dtype=np.int32).reshape(3, 8) * 2_000
    records = _records(rows)
    given = returned(answer(records))
    if not isinstance(given, tf.Tensor) or given.dtype != tf.int32:
        kind = given.dtype.name if isinstance(given, tf.Tensor) else type(given).__name__
        raise Wrong(f"It must give an int32 tensor, not {kind}.")
    if given.shape != (3, 8):
        raise Wrong(f"Three records of 8 ids must give shape [3, 8], not {given.shape.as_list()}.")
    if not np.array_equal(given, rows):
        raise Wrong("The ids differ. They were written as little-endian uint16.")
    graph = tf.function(answer).get_concrete_function(tf.TensorSpec([None], tf.string)).graph
    loops = [node.type for node in graph.get_operations() if "While" in node.type]
    if loops:
        raise Wrong(f"It loops over the records ({loops[0]}): parse them in one call.")
    return "One call for the whole batch: the pipeline's overhead is paid once, not for each row."


def _word_numbers(ids: np.ndarray, continues: np.ndarray, special: np.ndarray) -> np.ndarray:
    numbers = np.zeros_like(ids)
    for row, at in np.ndindex(*ids.shape):
        if at:
            same = continues[ids[row, at]] and not special[ids[row, at - 1]]
            numbers[row, at] = numbers[row, at - 1] + (not same)
    return numbers


def _check_word_numbers(answer: object) -> str:
    continues, special = np.zeros((2, 12), bool)
    continues[8:], special[:3] = True, True
    draw = np.random.default_rng(6)
    for ids in (
        np.array([[1, 5, 8, 9, 6, 2]]),
        np.array([[1, 8, 9, 2, 1, 10]]),
        draw.integers(0, 12, (20, 30)),
    ):
        looked_up = map(tf.constant, (ids.astype(np.int32), continues, special))
        given = np.asarray(returned(answer(*looked_up)))
        wanted = _word_numbers(ids, continues, special)
        if given.shape != wanted.shape:
            raise Wrong(f"For ids {list(ids.shape)} it must be as large, not {list(given.shape)}.")
        if wrong := np.argwhere((given != wanted).any(1)).ravel().tolist():
            row = wrong[0]
            raise Wrong(
                f"Ids {ids[row][:12].tolist()} (8 and more continue, 0 to 2 are special) have the "
                f"words {wanted[row][:12].tolist()}, not {given[row][:12].tolist()}."
            )
    specs = tf.TensorSpec([4, 6], tf.int32), tf.TensorSpec([12], tf.bool)
    check_compiles(answer, *specs, specs[1])
    return "A running count of the positions where a word begins: a cumulative sum, nothing else."
