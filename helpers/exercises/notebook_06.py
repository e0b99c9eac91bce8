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
    # Up to 46,000, which a signed 16-bit number would read as negative.
    rows = np.arange(24, dtype=np.int32).reshape(3, 8) * 2_000
    ids = returned(answer(_records(rows)))
    if not isinstance(ids, tf.Tensor):
        raise Wrong(f"It must give an int32 tensor, not {type(ids).__name__}.")
    if ids.dtype != tf.int32:
        raise Wrong(f"It must give an int32 tensor, not {ids.dtype.name}.")
    if ids.shape != (3, 8):
        raise Wrong(f"Three records of 8 ids must give shape [3, 8], not {ids.shape.as_list()}.")
    if not np.array_equal(ids, rows):
        raise Wrong("The ids differ. They were written as little-endian uint16.")
    # map_fn is a loop as well.
    graph = tf.function(answer).get_concrete_function(tf.TensorSpec([None], tf.string)).graph
    for node in graph.get_operations():
        if "While" in node.type:
            raise Wrong(f"It loops over the records ({node.type}): parse them in one call.")
    return "One call for the whole batch: the pipeline's overhead is paid once, not for each row."


def _write_files(folder: str) -> list[str]:
    """Write four files of five records; file n begins with 100n, and each row is 8 on."""
    paths = []
    for number in range(4):
        path = str(pathlib.Path(folder, f"{number}.tfrecord"))
        rows = np.arange(40).reshape(5, 8) + 100 * number
        with tf.io.TFRecordWriter(path) as file:
            for record in _records(rows).numpy():
                file.write(record)
        paths.append(path)
    return paths


def _check_read(answer: object) -> str:
    with tempfile.TemporaryDirectory() as folder:
        dataset = returned(answer(_write_files(folder), 6))
        spec = getattr(dataset, "element_spec", None)
        if not isinstance(spec, tf.TensorSpec):
            raise Wrong("Return a tf.data.Dataset whose elements are one tensor.")
        if spec.shape != [6, 8] or spec.dtype != tf.int32:
            raise Wrong(f"Elements must be int32 (6, 8), not {spec.dtype.name} {spec.shape}.")
        # A dataset that repeats would never end.
        batches = list(itertools.islice(dataset.as_numpy_iterator(), 4))
    rows = [tuple(row) for batch in batches for row in batch.tolist()]
    if len(set(rows)) < len(rows):
        raise Wrong("A record comes more than once.")
    is_whole = [row[0] % 100 % 8 == 0 and row[-1] == row[0] + 7 for row in rows]
    if len(rows) != 18 or not all(is_whole):
        raise Wrong("20 records make 3 batches of 6, with the numbers that are in the files.")
    # How often the next record is of another file: three times where files follow each other.
    changes = 0
    for row, next_row in itertools.pairwise(rows):
        changes += row[0] // 100 != next_row[0] // 100
    if changes < 5:
        raise Wrong("The records come file after file: nothing mixes them.")
    return "Files side by side, records mixed, one parse for each batch, one shape."


def _check_mask_batch(answer: object) -> str:
    ordinary = np.array([40, 18, 3, 14])
    expected = [6, 3, 1, 2]  # a sixth of them, rounded
    position = np.arange(48)
    # Ordinary tokens are 5 and more, special ones below: mixed, so that no place tells them apart.
    ids = np.where(position < ordinary[:, None], position + 5, position % 4)
    ids = np.random.default_rng(6).permuted(ids, axis=1)
    draw, same_seed, other_second, other_first = [
        _masked_places(answer, ids, seed) for seed in ([6, 0], [6, 0], [6, 1], [7, 0])
    ]
    if not np.array_equal(draw, same_seed):
        raise Wrong("The same seed chose other tokens: take tf.random.stateless_uniform.")
    if np.array_equal(draw, other_second) or np.array_equal(draw, other_first):
        raise Wrong("Another seed chose the same tokens; both of its numbers count.")
    for places in (draw, other_second, other_first):
        counts = places.sum(1).tolist()
        if counts != expected:
            raise Wrong(
                f"Of {ordinary.tolist()} ordinary tokens {expected} are to be chosen, not {counts}."
            )
    return "As many tokens as it takes in each row, and any step's masks can be drawn again."


def _masked_places(answer: object, ids: np.ndarray, seed: list[int]) -> np.ndarray:
    """Mask a batch once, and give where it was masked: bool [rows, tokens]."""
    result = returned(answer(tf.constant(ids, tf.int32), tf.constant(seed, tf.int64)))
    if not isinstance(result, tuple | list) or len(result) != 2:
        raise Wrong("Return two tensors: masked ids, labels.")
    masked, labels = map(np.asarray, result)
    if masked.shape != ids.shape or labels.shape != ids.shape:
        raise Wrong(f"Both must have the shape {[*ids.shape]}.")
    places = masked != ids
    if (places & (ids < 5)).any():
        raise Wrong("A special token was chosen: only those from 5 up may be.")
    if (masked[places] != 4).any() or (labels != np.where(places, ids, -100)).any():
        raise Wrong("A chosen token becomes 4 and is its label; labels are -100 everywhere else.")
    return places
