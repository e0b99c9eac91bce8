"""Check 8: loss and gradients with a TPU's products."""

import numpy as np
import pytest
import tensorflow as tf
from small_models import KINDS, VECTOR, batches, dense, found, mean, the

from tpu_preflight.checklist import preflight
from tpu_preflight.report import FAIL, OPEN, PASS, WARN

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("kind", **KINDS)
def test_loss_and_gradients_of_a_model_are_compared(kind, no_compiler):
    model = dense(kind, dropout=0.3)
    before = [w.copy() for w in model.get_weights()]
    item = the(preflight(model, batches(labels=np.arange(64) % 4), "v5e-1", numerics=True), 8)
    # One product forward; backward one, for the weights.
    assert item.state == PASS and "2 products" in item.finding and "3 real batches" in item.finding
    assert "gradients" in item.finding and "two batches" in item.finding
    assert all(map(np.array_equal, before, model.get_weights()))


LARGE = tf.constant([[100.25], [3.0]])
ROUNDED = tf.constant([[100.0], [3.0]])  # what the other becomes in bfloat16


def cancels(x):
    return tf.reduce_mean(x @ LARGE - x @ ROUNDED)


def overflows(x):
    return tf.reduce_mean(tf.math.log(x @ LARGE - x @ ROUNDED))


@pytest.mark.parametrize(
    ("step", "state", "says"),
    [
        (cancels, WARN, "up to"),
        (overflows, FAIL, "nan or infinite"),
        (lambda x: tf.math.log(-x), OPEN, "not finite in float32"),
    ],
)
def test_rounding_that_matters_is_found(step, state, says, no_compiler):
    data = tf.data.Dataset.from_tensors(tf.constant([[1.0, 2.0], [3.0, 4.0]]))
    item = the(preflight(step, data, "v5e-1", numerics=True), 8)
    assert item.state == state and says in item.finding


def test_without_batches_or_without_asking_there_is_no_verdict(no_compiler):
    assert the(preflight(mean, VECTOR, "v5e-1", numerics=True), 8).state == OPEN
    assert not found(preflight(mean, VECTOR, "v5e-1"), 8)
