"""Checks 2 and 3: shapes, types, batches, Python and files of a dataset."""

import numpy as np
import pytest
import tensorflow as tf
from small_models import batches, mean, states, the

from tpu_preflight.checklist import preflight
from tpu_preflight.errors import PreflightError
from tpu_preflight.report import FAIL, PASS, WARN

pytestmark = pytest.mark.slow


def widths(*sizes):
    return tf.data.Dataset.from_tensor_slices([*sizes]).map(lambda n: tf.zeros([8, n]))


def column(values):
    dataset = tf.data.Dataset.from_tensor_slices((np.zeros([16], "f"), values))
    ragged = isinstance(values, tf.RaggedTensor)
    return dataset.ragged_batch(8) if ragged else dataset.batch(8)


def generated():
    def rows():
        yield from np.zeros([16, 8], "f")

    dataset = tf.data.Dataset.from_generator(rows, output_signature=tf.TensorSpec([8]))
    return dataset.batch(8, drop_remainder=True)


@pytest.mark.parametrize(
    ("dataset", "name", "state", "says"),
    [
        (widths(3, 3, 3), "compilations in", PASS, "1 set of shapes in all 3 batches"),
        (widths(3, 4, 3), "compilations in", WARN, "2 compilations"),
        (widths(*range(1, 11)), "compilations in", FAIL, "10 compilations"),
        (column(["a"] * 16), "tensor 1", FAIL, "holds text"),
        (column(np.zeros([16], "complex128")), "tensor 1", FAIL, "complex128"),
        (column(np.zeros([16], "float64")), "tensor 1", WARN, "imitates"),
        (column(tf.ragged.constant([[1], [1, 2]] * 8)), "tensor 1", FAIL, "RaggedTensor"),
        (batches(16, number=80), "over 8 replicas", PASS, "2 for each"),
        (batches(20, number=80), "over 8 replicas", FAIL, "such as 24"),
        (batches(16), "remainder", PASS, "16 rows"),
        (batches(24, drop_remainder=False), "remainder", WARN, "16 rows instead of 24"),
        (batches(16, drop_remainder=False), "remainder", PASS, "16 rows"),  # 64 rows divide
        (batches(24, drop_remainder=False).repeat(), "remainder", WARN, "16 rows instead"),
        (generated(), "Python in the pipeline", WARN, "from_generator"),
    ],
)
def test_what_is_said_of_a_dataset(dataset, name, state, says, no_compiler):
    result = preflight(mean, dataset, ["v5e-8", "v5e-1"])  # one replica needs no division
    (item,) = [item for item in result.items if name in item.name]
    assert item.state == state and says in repr(item)


def test_a_dataset_longer_than_the_sample_promises_no_more_than_was_seen(no_compiler):
    result = preflight(mean, widths(3, 3, 3, 4, 4), "v5e-1", batches=2)
    assert "so far" in the(result, 2, "compilations in").finding
    assert the(result, 2, "promises").state == WARN


def test_a_generator_is_fatal_on_a_node(no_compiler):
    result = preflight(mean, generated(), "v5e-1", node=True)
    assert the(result, 3, "Python in the pipeline").state == FAIL


@pytest.mark.parametrize(("node", "state"), [(False, PASS), (True, FAIL)])
def test_a_file_on_this_disk_is_out_of_a_nodes_sight(node, state, tmp_path, no_compiler):
    path = tmp_path / "rows.tfrecord"
    with tf.io.TFRecordWriter(str(path)) as writer:
        for _ in range(8):
            writer.write(tf.io.serialize_tensor(tf.zeros([8])).numpy())

    def parse(record):
        return tf.ensure_shape(tf.io.parse_tensor(record, tf.float32), [8])

    dataset = tf.data.TFRecordDataset(str(path)).map(parse).batch(4, drop_remainder=True)
    item = the(preflight(mean, dataset, "v5e-1", node=node), 3, "files")
    assert item.state == state and "rows.tfrecord" in item.finding
    assert str(tmp_path) not in item.finding


def test_a_dataset_that_raises_and_one_that_is_empty(no_compiler):
    def breaks():
        raise ValueError("no such row")
        yield

    broken = tf.data.Dataset.from_generator(breaks, output_signature=tf.TensorSpec([8])).batch(8)
    result = preflight(mean, broken, "v5e-1")
    item = the(result, 3, "reading it")
    assert item.state == FAIL and "no such row" in item.finding and states(result, 1) == []
    with pytest.raises(PreflightError, match="no batch"):
        preflight(mean, batches(100), "v5e-1")
