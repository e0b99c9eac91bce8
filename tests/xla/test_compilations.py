"""The count of compilations against XLA's own dump, and what the profiler behind it refuses."""

import json
import os
import sys

import pytest
import tensorflow as tf
from terminal import call

from helpers.base.errors import CourseError
from helpers.base.settings import ENVIRONMENT, ROOT
from helpers.xla.compilations import count_compilations

pytestmark = pytest.mark.long


def test_nesting_and_a_stop_from_inside_are_told_and_the_outer_block_still_counts():
    refusal = pytest.raises(CourseError, match="Nothing can be recorded here")
    with count_compilations() as outer:
        with refusal, count_compilations():
            pass
        tf.function(lambda x: x * x, jit_compile=True)(tf.ones([11]))
    assert outer.count == 1
    with refusal, count_compilations():
        tf.profiler.experimental.stop(save=False)


DUMP = """
import json, pathlib, sys
import tensorflow as tf
from helpers.xla.compilations import count_compilations

def calls(signature=None):
    step = tf.function(lambda x: tf.reduce_sum(x * x), jit_compile=True, input_signature=signature)
    return lambda: [step(tf.ones([n])) for n in (2, 3, 4, 2, 3)]

def fit():
    model = tf.keras.Sequential([tf.keras.layers.Dense(2, input_shape=(3,))])
    model.compile("sgd", "mse", jit_compile=True)
    model.fit(tf.ones([20, 3]), tf.ones([20, 2]), batch_size=8, epochs=2, verbose=0)

def dumped():
    return len(list(pathlib.Path(sys.argv[1]).glob("*cpu_after_optimizations.txt")))

counts = []
for run in (calls(), calls([tf.TensorSpec([None], tf.float32)]), fit):
    start = dumped()
    with count_compilations() as compilations:
        run()
    counts.append([compilations.count, dumped() - start])
print(json.dumps(counts))
"""


def test_the_count_agrees_with_xlas_own_dump(tmp_path):
    flags = {"XLA_FLAGS": f"--xla_dump_to={tmp_path}", "PYTHONPATH": str(ROOT)}
    env = os.environ | ENVIRONMENT | flags
    process = call(sys.executable, "-c", DUMP, tmp_path, env=env, check=True)
    shapes, one_trace, fit = json.loads(process.stdout.splitlines()[-1])
    assert shapes == one_trace == [3, 3]
    assert fit[0] == fit[1] > 1
