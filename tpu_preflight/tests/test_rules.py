"""Check 1: what XLA refuses is named with the learner's line; what TensorFlow's TPU bridge says."""

import functools

import numpy as np
import pytest
import tensorflow as tf
from small_models import VECTOR, states, the

from tpu_preflight.checklist import preflight
from tpu_preflight.report import FAIL, OPEN, PASS, WARN

pytestmark = pytest.mark.slow


def with_python(x):
    return tf.numpy_function(np.sin, [x], tf.float32)


def with_value(x):
    return tf.range(tf.cast(x[0], tf.int32))


@tf.autograph.experimental.do_not_convert
def with_bool(x):
    return x if tf.reduce_sum(x) > 0 else -x


@pytest.mark.parametrize(
    ("fn", "says", "line", "fix"),
    [
        (with_python, "PyFunc", "tf.numpy_function(np.sin", "input pipeline"),
        (with_value, "depends on a value", "tf.range(tf.cast(x[0]", "static shape"),
        (with_bool, "Python `bool`", "if tf.reduce_sum(x) > 0", "tf.where"),
    ],
)
def test_what_is_refused_is_named_with_its_line(fn, says, line, fix, no_compiler):
    report = preflight(fn, VECTOR, "v5e-1")
    item = the(report, 1)
    assert item.state == FAIL
    assert says in item.finding
    assert line in item.where
    assert fix in item.fix
    assert ("a round trip in each step" in item.fix) == (fn is with_python)
    assert report.exit_status == 1
    assert states(report, 6) == states(report, 7) == [OPEN]


def test_what_a_hidden_layer_computes_is_not_sent_to_the_input_pipeline(no_compiler):
    weights = tf.Variable(tf.ones([8]))

    def hidden(x):
        return with_python(x * weights) * weights

    fix = the(preflight(hidden, VECTOR, "v5e-1"), 1).fix
    assert "the input pipeline can't do it" in fix and "a round trip in each step" in fix


def test_sizes_of_one_line_are_said_once(no_compiler):
    def three_times(x):
        sizes = [tf.size(tf.unique(x[i:]).y) for i in range(3)]
        return sum(sizes)

    item = the(preflight(three_times, VECTOR, "v5e-1"), 1, "data-dependent")
    assert "f32[<=8]" in item.finding


def test_a_size_from_values_warns_with_its_bound(no_compiler):
    def with_unique(x):
        return tf.reduce_sum(tf.unique(x).y)

    item = the(preflight(with_unique, VECTOR, "v5e-1"), 1, "data-dependent")
    assert item.state == WARN
    assert "tf.unique(x)" in item.where
    assert "f32[<=8]" in item.finding
    assert "all 8 elements" in item.finding


@pytest.mark.parametrize(
    ("function", "check", "word"),
    [
        (tf.where, 1, "data-dependent"),
        (functools.partial(tf.debugging.check_numerics, message=""), 4, "checks inside"),
    ],
)
def test_what_a_library_makes_is_named_with_its_layer(function, check, word, no_compiler):
    layer = tf.keras.layers.Lambda(function, name="made_here")
    model = tf.keras.Sequential([tf.keras.layers.Input([8]), layer])
    report = preflight(model, tf.TensorSpec([2, 8]), "v5e-1")
    item = the(report, check, word)
    assert item.where.startswith("layer ")
    assert "made_here" in item.where


@pytest.mark.parametrize("wrapped", [lambda fn: fn, tf.function])
def test_a_lambda_is_read_like_any_function(wrapped, no_compiler):
    fn = wrapped(lambda x: tf.reduce_sum(x[x > 0]) if x[0] > 0 else x[1])
    item = the(preflight(fn, VECTOR, "v5e-1"), 1, "data-dependent")
    assert item.state == WARN
    assert "fn = wrapped(lambda" in item.where


AGES_BY_ID = tf.lookup.KeyValueTensorInitializer(tf.range(4), tf.range(4))
AGES = tf.lookup.StaticHashTable(AGES_BY_ID, -1, "ages")
TABLE = tf.Variable(tf.ones([8, 4]))
GENERATOR = tf.random.Generator.from_seed(1)


@pytest.fixture
def soft_placement():
    from tensorflow.python.eager import context

    tf.config.set_soft_device_placement(True)
    yield
    context.context()._soft_device_placement = None  # "not set" can't be put back publicly


def printing(x):
    for _ in tf.range(2):
        tf.print("sum", tf.reduce_sum(x))
    return tf.sqrt(x)


def look_up(x):
    return AGES.lookup(tf.cast(x, tf.int32))


@pytest.mark.parametrize(
    ("step", "refused", "on_host", "where"),
    [
        (printing, "StringFormat", "PrintV2, StringFormat", "tf.print"),
        (look_up, "look_up uses the lookup table", "LookupTableFindV2", "AGES.lookup"),
    ],
)
def test_what_the_host_could_take_is_refused_and_said(
    step, refused, on_host, where, no_compiler, request
):
    item = the(preflight(step, VECTOR, "v5e-1"), 1, refused)
    assert item.state == FAIL
    assert where in item.where
    assert "set_soft_device_placement(True)" in item.fix
    assert item.fix.endswith(f": {on_host}.")
    request.getfixturevalue("soft_placement")
    report = preflight(step, VECTOR, "v5e-1")
    item = the(report, 1, "TPU bridge")
    assert item.state == WARN
    assert item.finding.endswith(on_host)
    assert where in item.where
    assert the(report, 1, "on this CPU").state == OPEN
    assert report.status == "can't tell"


def draws_from_a_generator(x):
    return x + GENERATOR.normal([8])


def gathers_from_a_variable(x):
    return x + tf.gather_nd(TABLE, [[0, 0]])


@pytest.mark.parametrize("step", [draws_from_a_generator, gathers_from_a_variable])
def test_what_a_tpu_takes_is_taken_here(step, no_compiler):
    report = preflight(step, VECTOR, "v5e-1")
    assert report.status == "ready"
    assert the(report, 1, "TPU bridge").state == PASS
