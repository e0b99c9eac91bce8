"""Checks 2 and 3: shapes, types, batches, Python and files of a dataset."""

import time

import numpy as np
import pytest
import tensorflow as tf
from small_models import batches, mean, states, the

from tpu_preflight import checklist
from tpu_preflight.checklist import preflight
from tpu_preflight.errors import PreflightError
from tpu_preflight.report import FAIL, PASS, WARN
from tpu_preflight.subjects import pipeline

pytestmark = pytest.mark.slow


def widths(*sizes):
    """A dataset of batches of these widths."""
    numbers = tf.data.Dataset.from_tensor_slices([*sizes])
    return numbers.map(lambda n: tf.zeros([8, n]))


def column(values):
    """A dataset with these values beside a column of numbers."""
    dataset = tf.data.Dataset.from_tensor_slices((np.zeros([16], "f"), values))
    if isinstance(values, tf.RaggedTensor):
        return dataset.ragged_batch(8)
    return dataset.batch(8)


def generated():
    def rows():
        yield from np.zeros([16, 8], "f")

    dataset = tf.data.Dataset.from_generator(rows, output_signature=tf.TensorSpec([8]))
    return dataset.batch(8, True)


@pytest.mark.parametrize(
    ("dataset", "name", "state", "says"),
    [
        (widths(3, 3, 3), "compilations in", PASS, "1 set of shapes in all 3 batches"),
        (widths(3, 4, 3), "compilations in", WARN, "2 compilations"),
        (widths(*range(1, 11)), "compilations in", FAIL, "10 compilations"),
        (column(["a"] * 16), "tensor 1", FAIL, "holds text"),
        (column(np.zeros([16], "complex128")), "tensor 1", FAIL, "complex128"),
        (column(np.zeros([16], "float64")), "tensor 1", WARN, "emulates"),
        (column(tf.ragged.constant([[1], [1, 2]] * 8)), "tensor 1", FAIL, "RaggedTensor"),
        (column(tf.ragged.constant([[1], [1, 2]] * 8)), "over 8 replicas", PASS, "1 on each"),
        (column(tf.ragged.constant([[1], [1, 2]] * 8)), "remainder", PASS, "8 rows"),
        (
            column(tf.ragged.constant([[1]] * 8 + [[1, 2]] * 8)),
            "compilations in",
            PASS,
            "1 set of shapes",
        ),
        (batches(16, number=80), "over 8 replicas", PASS, "2 on each"),
        (batches(20, number=80), "over 8 replicas", FAIL, "such as 24"),
        (batches(16), "remainder", PASS, "16 rows"),
        (batches(24, drop_remainder=False), "remainder", WARN, "16 rows instead of 24"),
        (batches(16, drop_remainder=False), "remainder", PASS, "16 rows"),  # 64 rows divide
        (batches(24, drop_remainder=False).repeat(), "remainder", WARN, "16 rows instead"),
        (generated(), "Python in the pipeline", WARN, "from_generator"),
    ],
)
def test_what_is_said_of_a_dataset(dataset, name, state, says, no_compiler):
    report = preflight(mean, dataset, ["v5e-8", "v5e-1"])  # one replica needs no division
    (item,) = [item for item in report.items if name in item.name]
    assert item.state == state
    assert says in repr(item)


def test_data_that_no_program_takes_end_the_wait(no_compiler, monkeypatch):
    def never_ends(*tensors):
        time.sleep(99)

    monkeypatch.setattr(checklist, "DECIDED", 0.5)
    report = preflight(never_ends, column(["a"] * 16), "v5e-1")
    assert "was not traced within 0.5 s" in the(report, 1).finding
    assert len(states(report, 3)) > 1


def test_a_dataset_longer_than_the_sample_promises_no_more_than_was_seen(no_compiler):
    report = preflight(mean, widths(3, 3, 3, 4, 4), "v5e-1", batches=2)
    assert "so far" in the(report, 2, "compilations in").finding
    assert the(report, 2, "promises").state == WARN


@pytest.mark.parametrize(("node", "state"), [(False, PASS), (True, FAIL)])
def test_a_node_sees_neither_this_disk_nor_this_python(node, state, tmp_path, no_compiler):
    path = tmp_path / "rows.tfrecord"
    with tf.io.TFRecordWriter(str(path)) as writer:
        for _ in range(8):
            writer.write(tf.io.serialize_tensor(tf.zeros([8])).numpy())

    def parse(record):
        return tf.ensure_shape(tf.io.parse_tensor(record, tf.float32), [8])

    dataset = tf.data.TFRecordDataset(str(path)).map(parse).batch(4, drop_remainder=True)
    item = the(preflight(mean, dataset, "v5e-1", node=node), 3, "files")
    assert item.state == state
    assert "rows.tfrecord" in item.finding
    assert str(tmp_path) not in item.finding
    python = the(preflight(mean, generated(), "v5e-1", node=node), 3, "Python in the pipeline")
    assert python.state == (FAIL if node else WARN)


def test_tensors_of_several_first_sizes_are_divided_each_by_itself(no_compiler):
    def reshapes(x, y):
        return tf.reshape(x, [32, 8]), y

    sizes = tf.data.Dataset.from_tensors((tf.zeros([32, 8]), tf.zeros([12, 8])))
    report = preflight(reshapes, sizes.repeat(2), "v5e-8")
    assert the(report, 1, "on this CPU").fix.startswith("Each replica gets its share")
    assert "batch of 12" in the(report, 3, "be divided").finding


def test_a_dataset_that_raises_and_one_that_is_empty(no_compiler):
    def breaks():
        raise ValueError("no such row")
        yield

    dataset = tf.data.Dataset.from_generator(breaks, output_signature=tf.TensorSpec([8]))
    report = preflight(mean, dataset.batch(8), "v5e-1")
    item = the(report, 3, "reading it")
    assert item.state == FAIL
    assert "no such row" in item.finding
    assert states(report, 1) == []
    with pytest.raises(PreflightError, match="no batch"):
        preflight(mean, batches(100), "v5e-1")


def in_python(x):
    return tf.numpy_function(lambda value: value, [x], tf.int64)


@tf.function
def in_python_inside(x):
    return tf.py_function(lambda value: value, [x], tf.int64)


def nested_dataset(x):
    return tf.data.Dataset.from_tensors(x).map(in_python_inside)


def test_python_functions_are_found_wherever_they_hide():
    numbers = tf.data.Dataset.range(4)
    mapped = numbers.map(in_python).batch(2)
    nested = numbers.interleave(nested_dataset).prefetch(1)
    zipped = tf.data.Dataset.zip((nested, mapped))
    for dataset, count in ((mapped, 1), (nested, 1), (zipped, 2), (numbers, 0)):
        kinds = [kind for kind, _ in pipeline.python_in(dataset)]
        assert kinds == ["a Python function"] * count
    ((_, place),) = pipeline.python_in(mapped)
    assert "return tf.numpy_function(" in place


def test_files_are_found_also_inside_an_interleave(tmp_path):
    path = tmp_path / "part-0.tfrecord"
    path.write_bytes(b"")
    names = tf.data.Dataset.from_tensor_slices([str(path), "gs://bucket/part-1.tfrecord"])
    for dataset in (tf.data.TFRecordDataset(names), names.interleave(tf.data.TFRecordDataset)):
        assert pipeline.files_of(dataset) == [str(path), "gs://bucket/part-1.tfrecord"]
    assert pipeline.files_of(names.map(tf.strings.length)) is None


@pytest.mark.parametrize(
    "reader",
    [
        tf.data.TextLineDataset,
        lambda path: tf.data.experimental.CsvDataset(path, [0, 0]),
        lambda path: tf.data.FixedLengthRecordDataset(path, 4),
        lambda path: tf.data.Dataset.from_tensors(path).map(tf.io.read_file),
        lambda path: tf.data.TFRecordDataset(f"file://{path}"),
    ],
    ids=["lines", "csv", "fixed", "read", "url"],
)
def test_files_of_every_reader_are_on_this_disk(reader, tmp_path, no_compiler):
    path = tmp_path / "rows.txt"
    path.write_text("1,2\n3,4\n")
    dataset = reader(str(path)).batch(2)
    assert pipeline.files_of(dataset) == [str(path)]
    assert pipeline.files_of(reader("gs://bucket/rows.txt").take(2)) in (
        ["gs://bucket/rows.txt"],
        [],
    )


def test_a_sample_ends_in_time():
    sample = pipeline.sample(tf.data.Dataset.range(3).repeat(), 10**9, 0.2)
    assert sample.endless
    assert not sample.ended
