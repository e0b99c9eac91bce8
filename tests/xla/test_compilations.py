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

pytestmark = pytest.mark.slow


def test_nesting_is_refused_and_the_outer_block_still_counts():
    with count_compilations() as outer:
        with (
            pytest.raises(CourseError, match="Nothing can be recorded here"),
            count_compilations(),
        ):
            pass
        tf.function(lambda x: x * x, jit_compile=True)(tf.ones([11]))
    assert outer.count == 1


def test_a_stop_from_inside_is_told():
    with pytest.raises(CourseError, match="or this one was stopped"), count_compilations():
        tf.profiler.experimental.stop(save=False)


DUMP = """
import json, pathlib, sys
import tensorflow as tf
from helpers.xla.compilations import count_compilations

def shapes(signature=None):
    step = tf.function(lambda x: tf.reduce_sum(x * x), jit_compile=True, input_signature=signature)
    return lambda: [step(tf.ones([n])) for n in (2, 3, 4, 2, 3)]

def fit(**options):
    model = tf.keras.Sequential([tf.keras.layers.Dense(2, input_shape=(3,))])
    model.compile("sgd", "mse", jit_compile=True)
    data = tf.data.Dataset.from_tensor_slices((tf.ones([20, 3]), tf.ones([20, 2])))
    return lambda: model.fit(data.batch(8, **options), epochs=2, verbose=0)

cases = {
    "shapes": shapes(),
    "one trace": shapes([tf.TensorSpec([None], tf.float32)]),
    "fit": fit(),
    "fit, whole batches": fit(drop_remainder=True),
}
dump, found = pathlib.Path(sys.argv[1]), {}
for name, run in cases.items():
    before = len(list(dump.glob("*cpu_after_optimizations.txt")))
    with count_compilations() as seen:
        run()
    found[name] = seen.count, len(list(dump.glob("*cpu_after_optimizations.txt"))) - before
print(json.dumps(found))
"""


def test_the_count_agrees_with_xlas_own_dump(tmp_path):
    flags = {"XLA_FLAGS": f"--xla_dump_to={tmp_path}", "PYTHONPATH": str(ROOT)}
    env = os.environ | ENVIRONMENT | flags
    done = call(sys.executable, "-c", DUMP, tmp_path, env=env, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    assert all(counted == dumped for counted, dumped in found.values()), found
    assert found["shapes"] == [3, 3]
    assert found["one trace"] == [3, 3]
    assert found["fit"][0] > found["fit, whole batches"][0] > 0
