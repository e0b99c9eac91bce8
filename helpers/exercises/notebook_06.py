"""The exercises of notebook 06, text to records."""

import itertools
import pathlib
import tempfile

import numpy as np
import tensorflow as tf

from helpers.exercises import Wrong, returned


def _records(rows: np.ndarray) -> tf.Tensor:
    """Write rows as the notebook's records, with one feature."""
    records = []
    for row in rows:
        record = tf.train.Example()
        record.features.feature["input_ids"].bytes_list.value.append(row.astype("<u2").tobytes())
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
    if loops := [node.type for node in graph.get_operations() if "While" in node.type]:
        raise Wrong(f"It loops over the records ({loops[0]}): parse them in one call.")
    return "One call for the whole batch: the pipeline's overhead is paid once, not for each row."


def _check_read(answer: object) -> str:
    with tempfile.TemporaryDirectory() as folder:
        paths = [str(pathlib.Path(folder, f"{number}.tfrecord")) for number in range(4)]
        for number, path in enumerate(paths):
            with tf.io.TFRecordWriter(path) as file:
                for record in _records(np.arange(40).reshape(5, 8) + 100 * number).numpy():
                    file.write(record)
        given = returned(answer(paths, 6))
        spec = getattr(given, "element_spec", None)
        if not isinstance(spec, tf.TensorSpec):
            raise Wrong("Return a tf.data.Dataset whose elements are one tensor.")
        if spec.shape != [6, 8] or spec.dtype != tf.int32:
            raise Wrong(f"Elements must be int32 (6, 8), not {spec.dtype.name} {spec.shape}.")
        batches = list(itertools.islice(given.as_numpy_iterator(), 4))
    rows = [tuple(row) for batch in batches for row in batch.tolist()]
    if len({*rows}) < len(rows):
        raise Wrong("A record comes more than once.")
    if len(rows) != 18 or any(row[0] % 100 % 8 or row[-1] != row[0] + 7 for row in rows):
        raise Wrong("20 records make 3 batches of 6, with the numbers that stand in the files.")
    files = [row[0] // 100 for row in rows]
    if sum(one != other for one, other in itertools.pairwise(files)) < 5:
        raise Wrong("The records come file after file: nothing mixes them.")
    return "Files side by side, records mixed, one parse for each batch, one shape."


def _check_mask_batch(answer: object) -> str:
    ordinary, wanted = np.array([40, 18, 3, 14]), [6, 3, 1, 2]
    ids = np.random.default_rng(6).permuted(
        np.where(np.arange(48) < ordinary[:, None], np.arange(5, 53), np.arange(48) % 4), axis=1
    )
    seen = []
    for seed in ([6, 0], [6, 0], [6, 1], [7, 0]):
        given = returned(answer(tf.constant(ids, tf.int32), tf.constant(seed, tf.int64)))
        if not isinstance(given, tuple | list) or len(given) != 2:
            raise Wrong("Return two tensors: masked ids, labels.")
        masked, labels = map(np.asarray, given)
        if masked.shape != ids.shape or labels.shape != ids.shape:
            raise Wrong(f"Both must have the shape {[*ids.shape]}.")
        chosen = masked != ids
        if (chosen & (ids < 5)).any():
            raise Wrong("A special token was chosen: only those from 5 up may be.")
        if (masked[chosen] != 4).any() or (labels != np.where(chosen, ids, -100)).any():
            raise Wrong(
                "A chosen token becomes 4 and is its label; labels are -100 everywhere else."
            )
        seen.append(chosen)
    if not np.array_equal(*seen[:2]):
        raise Wrong("The same seed chose other tokens: take tf.random.stateless_uniform.")
    if any(np.array_equal(seen[0], other) for other in seen[2:]):
        raise Wrong("Another seed chose the same tokens; both of its numbers count.")
    for counts in (chosen.sum(1).tolist() for chosen in seen):
        if counts != wanted:
            told = f"{wanted} are to be chosen, not {counts}"
            raise Wrong(f"Of {ordinary.tolist()} ordinary tokens {told}.")
    return "As many tokens as wanted in each row, and any step's masks can be drawn again."
