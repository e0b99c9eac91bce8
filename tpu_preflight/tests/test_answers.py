"""Check 4: results of the compiled step on real batches."""

import numpy as np
import pytest
import tensorflow as tf
from small_models import KINDS, VECTOR, batches, dense, ready, the

from tpu_preflight.checklist import preflight
from tpu_preflight.report import FAIL, OPEN, PASS, WARN
from tpu_preflight.subjects import results, tensorflow_subject

pytestmark = pytest.mark.slow


def test_a_label_out_of_range_is_caught_on_real_data(no_compiler):
    labels = [0] * 40 + [-100] + [0] * 23  # in the third batch
    item = the(preflight(dense(), batches(labels=labels), "v5e-8"), 4, "batch 3")
    assert item.state == FAIL
    assert "-100" in item.finding
    assert "loss nan" in item.finding


def gathers(i):
    return tf.gather(tf.ones([4]), i)


def last_positive(x):
    return x[x > 0][-1]


def logarithm_in_bfloat16(x):
    return tf.math.log(tf.cast(x, tf.bfloat16))


def mean_logarithm(x):
    return tf.reduce_mean(tf.math.log(x))


def draws_from_a_seed(x):
    return x + tf.random.stateless_normal([2], [1, 2])


def draws_a_little(x):
    return x + 1e-9 * tf.random.normal([2])


@pytest.mark.parametrize(
    ("step", "batch", "state", "says"),
    [
        (gathers, [0, 3], PASS, "1 real batch"),
        (gathers, [0, 4], FAIL, "TensorFlow raises"),
        (last_positive, [1.0, 2.0, -1.0, -2.0], FAIL, "eager 2, compiled"),
        (logarithm_in_bfloat16, [0.0, 1.0], WARN, "infinite"),
        (tf.math.log, [0.0, 1.0], WARN, "infinite"),
        (tf.math.log, [-1.0, 1.0], FAIL, "not finite"),
        (mean_logarithm, [0.0, 1.0], FAIL, "not finite"),
        (draws_from_a_seed, [0.0] * 2, OPEN, "random numbers"),
        (draws_a_little, [1.0, 1.0], OPEN, "random numbers"),
    ],
)
def test_a_function_on_a_real_batch(step, batch, state, says, no_compiler):
    dataset = tf.data.Dataset.from_tensors(tf.constant(batch))
    item = the(preflight(step, dataset, "v5e-1"), 4)
    assert item.state == state
    assert says in item.finding


def test_what_rounding_decides_is_no_difference(no_compiler):
    values = tf.Variable(tf.linspace(0.1, 0.9, 256))
    hyperbolic_tangents = tf.tanh(values)

    def step(x):
        # Of XLA's tangents some differ in the last digit.
        return x + tf.sign(tf.tanh(values) - hyperbolic_tangents)

    dataset = tf.data.Dataset.from_tensors(tf.zeros([256]))
    item = the(preflight(step, dataset, "v5e-1"), 4)
    assert item.state == PASS
    assert "except for result: rounding decides" in item.finding


def test_a_dropped_assertion_warns_with_its_line(no_compiler):
    def guarded(x):
        tf.debugging.assert_less(x, 100.0)
        return x * 2.0

    item = the(preflight(guarded, VECTOR, "v5e-1"), 4, "checks inside")
    assert item.state == WARN
    assert "assert_less" in item.where


@pytest.mark.parametrize("kind", **KINDS)
def test_a_model_that_draws_is_compared_by_its_test_step(kind, no_compiler):
    item = the(preflight(ready(kind, dropout=0.5), target="v5e-1"), 4, "test step")
    assert item.state == PASS
    assert "3 real batches" in item.finding


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor"),
        RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 8 bytes."),
    ],
    ids=lambda error: type(error).__name__,
)
def test_too_little_memory_here_says_nothing_of_the_step(error):
    answer = {"loss": np.array(1.0)}
    for eager, compiled in ((error, answer), (answer, error)):
        assert results.difference(eager, compiled, 1e-3).key == "no_room"


def half(*values):
    return {"half": np.array(values, tf.bfloat16.as_numpy_dtype)}


@pytest.mark.parametrize(
    ("eager", "compiled", "tolerance", "says"),
    [
        ({"loss": 1.7222, "accuracy": 0.25}, {"loss": 1.7247, "accuracy": 0.5}, 0.03, None),
        ({"loss": 1.7222}, {"loss": 1.7247}, 0.001, "loss: eager 1.722, compiled 1.725"),
        (half(1, 2, 3), half(1, 2, 4), 0.03, "eager 3, compiled 4"),
        ({"a": [1.0, 2.0]}, {"a": [1.0]}, 0.03, "a: eager [2], compiled 1"),
    ],
)
def test_what_rounding_explains_is_the_same(eager, compiled, tolerance, says):
    eager_arrays = {name: np.asarray(value) for name, value in eager.items()}
    compiled_arrays = {name: np.asarray(value) for name, value in compiled.items()}
    difference = results.difference(eager_arrays, compiled_arrays, tolerance)
    if says is None:
        assert difference is None
    else:
        assert says in difference.words["said"]


@pytest.mark.parametrize("kind", [tf.bfloat16, tf.float16, tf.float32])
def test_the_tolerance_is_that_of_the_lowest_precision_in_the_step(kind, no_compiler, monkeypatch):
    tolerances = []

    def difference(eager, compiled, tolerance):
        tolerances.append(tolerance)

    monkeypatch.setattr(results, "difference", difference)

    @tf.function
    def inner(x):
        return tf.cast(tf.cast(x, kind) * 2, tf.float32)

    preflight(lambda x: inner(x), tf.data.Dataset.from_tensors(tf.ones([2])), "v5e-1")
    assert tolerances == [results.TOLERANCES[kind.name]]


@pytest.mark.parametrize("limit", ["MANY_BYTES", "MANY_VALUES"])
def test_of_what_is_large_a_few_rows_are_compared(limit, no_compiler, monkeypatch):
    monkeypatch.setattr(tensorflow_subject, limit, 10)
    item = the(preflight(dense(), batches(), "v5e-1"), 4)
    assert item.state == PASS
    assert item.name.startswith("test step on 4 rows")
    bad = batches(labels=[0, 0, 0, -100] * 16)
    assert the(preflight(dense(), bad, "v5e-1"), 4).state == FAIL


def test_a_test_step_that_fails_leaves_the_comparison_open(no_compiler):
    def test_step(data):
        raise KeyError("no test step here")

    model = dense(dropout=0.5)
    model.test_step = test_step
    report = preflight(model, batches(), "v5e-1")
    item = the(report, 4)
    assert item.state == OPEN
    assert "no test step here" in item.finding
    assert "raise KeyError" in item.where
    assert report.status == "ready"


def held_by(model):
    return [*model.get_weights(), int(model.optimizer.iterations)]


@pytest.mark.parametrize("kind", **KINDS)
def test_the_model_holds_what_it_held_before(kind, no_compiler):
    model = dense(kind)
    model.fit(batches(), shuffle=False, verbose=0)
    values = held_by(model)
    preflight(model, batches(), "v5e-8")
    assert all(map(np.array_equal, values, held_by(model)))
    assert values[-1] == 4
