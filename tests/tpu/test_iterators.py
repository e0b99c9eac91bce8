"""Autotuning goes for every iterator, and what a dataset gives stays."""

import sys

import pytest
from terminal import call

pytestmark = pytest.mark.long

# In a process of its own: the change is for the whole process.
SCRIPT = """
import sys
import tensorflow as tf
from tensorflow.python.data.ops import dataset_ops
from helpers.tpu.iterators import disable_autotuning

if "without the method" in sys.argv:
    del dataset_ops.DatasetV2._apply_debug_options
print(disable_autotuning())
if "without the method" not in sys.argv:
    dataset = tf.data.Dataset.range(5).map(lambda x: x + 1, tf.data.AUTOTUNE).batch(2)
    print(dataset._apply_debug_options().options().autotune.enabled)
    print([batch.tolist() for batch in dataset.as_numpy_iterator()])
"""


def test_it_is_off_and_the_elements_are_the_same():
    done = call(sys.executable, "-c", SCRIPT)
    assert done.stdout.splitlines()[-3:] == ["True", "False", "[[1, 2], [3, 4], [5]]"], done.stderr


def test_a_tensorflow_without_the_method_is_left_alone():
    done = call(sys.executable, "-c", SCRIPT, "without the method")
    assert done.stdout.splitlines()[-1] == "False", done.stderr
