"""The exercises of notebook 06, text to records."""

import numpy as np
import tensorflow as tf

from helpers.exercises import Wrong, returned


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
