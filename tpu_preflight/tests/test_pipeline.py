"""A tf.data pipeline: its Python, its files, and a sample of it."""

import pytest
import tensorflow as tf

from tpu_preflight.checks import pipeline

pytestmark = pytest.mark.slow


def test_generators_and_python_functions_are_found_wherever_they_hide():
    def generator():
        yield 1

    @tf.function
    def inner(x):
        return tf.py_function(lambda v: v, [x], tf.int64)

    spec = tf.TensorSpec([], tf.int32)
    generated = tf.data.Dataset.from_generator(generator, output_signature=spec)
    number = tf.data.Dataset.range(4)
    python = number.map(lambda x: tf.numpy_function(lambda v: v, [x], tf.int64)).batch(2)
    nested = number.interleave(lambda x: tf.data.Dataset.from_tensors(x).map(inner)).prefetch(1)
    both = tf.data.Dataset.zip((generated, python))
    for dataset, calls in (
        (generated, ["a generator"]),
        (python, ["a Python function"]),
        (nested, ["a Python function"]),
        (both, ["a Python function", "a generator"]),
        (number, []),
    ):
        assert sorted(call.what for call in pipeline.parts(dataset).python) == calls
    assert "python = number.map(" in pipeline.parts(python).python[0].where


def test_files_are_found_also_inside_an_interleave(tmp_path):
    path = tmp_path / "part-0.tfrecord"
    path.write_bytes(b"")
    names = tf.data.Dataset.from_tensor_slices([str(path), "gs://bucket/part-1.tfrecord"])
    for dataset in (tf.data.TFRecordDataset(names), names.interleave(tf.data.TFRecordDataset)):
        parts = pipeline.parts(dataset)
        assert parts.reads_files and parts.local == (str(path),)
        assert parts.remote == ("gs://bucket/part-1.tfrecord",)
    in_memory = pipeline.parts(names.map(tf.strings.length))
    assert not in_memory.reads_files and in_memory.local == in_memory.remote == ()


def test_a_sample_ends_in_time_and_reports_errors():
    slow = pipeline.sample(tf.data.Dataset.range(3).repeat(), 10**9, 0.2)
    assert slow.slow and slow.length == -1 and not slow.ended

    numbers = tf.data.Dataset.from_tensor_slices([1, 0]).map(
        lambda n: tf.ensure_shape(tf.zeros([n]), [1])
    )
    broken = pipeline.sample(numbers, 9, 9.0)
    assert broken.seen == 1 and "not compatible" in broken.error
