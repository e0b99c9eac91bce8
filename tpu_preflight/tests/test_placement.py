"""Check 1 with TensorFlow's TPU bridge: the TPU, its host, or neither."""

import pytest
import tensorflow as tf
from small_models import VECTOR, classifier, the

from tpu_preflight.checklist import preflight
from tpu_preflight.report import FAIL, OPEN, PASS, WARN

pytestmark = pytest.mark.slow

X = tf.TensorSpec([4])
AGES = tf.lookup.StaticHashTable(
    tf.lookup.KeyValueTensorInitializer(tf.range(4), tf.range(4)), -1, "ages"
)
TABLE = tf.Variable(tf.ones([8, 4]))
GENERATOR = tf.random.Generator.from_seed(1)


@pytest.fixture
def soft():
    from tensorflow.python.eager import context

    tf.config.set_soft_device_placement(True)
    yield
    context.context()._soft_device_placement = None  # "not set" can't be put back publicly


def printing(x):
    tf.print("sum", tf.reduce_sum(x))
    return tf.sqrt(x)


def look_up(x):
    return AGES.lookup(tf.cast(x, tf.int32))


def rotated():
    layers = tf.keras.layers
    parts = layers.Input([8, 8, 3]), layers.RandomRotation(0.1), layers.Flatten(), layers.Dense(4)
    images = tf.data.Dataset.from_tensors((tf.ones([16, 8, 8, 3]), tf.zeros([16], tf.int32)))
    return classifier(tf.keras, *parts), images


CASES = [
    (printing, "StringFormat", "PrintV2, StringFormat", "tf.print"),
    (look_up, "the lookup table ages", "LookupTableFindV2", "AGES.lookup"),
]


@pytest.mark.parametrize(("step", "refused", "on_host", "where"), CASES)
def test_what_the_host_could_take_is_refused_and_said(step, refused, on_host, where, no_compiler):
    item = the(preflight(step, VECTOR, "v5e-1"), 1, refused)
    assert item.state == FAIL and where in item.where
    assert "set_soft_device_placement(True)" in item.fix and item.fix.endswith(f": {on_host}.")


@pytest.mark.parametrize(("step", "refused", "on_host", "where"), CASES)
def test_with_soft_placement_on_it_would_run_there(
    step, refused, on_host, where, no_compiler, soft
):
    report = preflight(step, VECTOR, "v5e-1")
    item = the(report, 1, "TPU bridge")
    assert item.state == WARN and item.finding.endswith(on_host) and where in item.where
    assert the(report, 1, "on this CPU").state == OPEN and report.status == "can't tell"


def test_what_a_layer_of_keras_makes_is_named_by_the_layer(no_compiler):
    report = preflight(rotated, target="v5e-8")
    item = the(report, 1, "ImageProjectiveTransformV3")
    assert item.state == FAIL and item.where.startswith("layer sequential")
    assert "/random_rotation" in item.where and "Generator" not in repr(report)


@pytest.mark.parametrize(
    "step",
    [lambda x: x + GENERATOR.normal([8]), lambda x: x + tf.gather_nd(TABLE, [[0, 0]])],
    ids=["Generator", "gather_nd"],
)
def test_what_a_tpu_takes_is_taken_here(step, no_compiler):
    report = preflight(step, VECTOR, "v5e-1")
    assert report.status == "ready" and the(report, 1, "TPU bridge").state == PASS
