"""Check 5: jit_compile, and what was made outside the scope."""

import keras
import pytest
import tensorflow as tf
from small_models import KINDS, VECTOR, batches, bert, dense, mean, ready, the

from helpers.base.errors import CourseError
from helpers.preflight.checklist import preflight
from helpers.preflight.report import FAIL, PASS, WARN

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("kind", **KINDS)
@pytest.mark.parametrize(("on", "state"), [(True, FAIL), (False, PASS)])
def test_jit_compile_left_on(kind, on, state, no_compiler):
    result = preflight(dense(kind, jit_compile=on), batches(), "v5e-1")
    assert the(result, 5, "jit_compile").state == state
    assert result.status == ("not ready" if on else "ready")


def test_jit_compile_of_a_function_warns(no_compiler):
    marked = preflight(tf.function(mean, jit_compile=True), VECTOR, "v5e-1")
    assert the(marked, 5, "jit_compile").state == WARN


@pytest.mark.parametrize(
    ("kind", "part", "make", "says"),
    [
        (tf.keras, "optimizer", tf.keras.optimizers.Adam, "optimizer"),
        (keras, "optimizer", keras.optimizers.Adam, "optimizer"),
        (tf.keras, "metrics", lambda: [tf.keras.metrics.SparseCategoricalAccuracy()], "Metric"),
    ],
)
def test_what_was_made_outside_the_scope(kind, part, make, says, no_compiler):
    outside = {"optimizer": "adam", part: make()}

    def build():
        model = dense(kind)
        model.compile(loss="mse", **outside)
        return model, batches().map(lambda x, y: (x, x[:, :4]))

    item = the(preflight(build, target="v5e-1"), 5, "scope")
    assert item.state == FAIL and says in item.finding
    assert says != "Metric" or "model.compile" in item.where


def test_a_model_that_is_not_built_yet_has_nothing_outside(no_compiler):
    assert the(preflight(lambda: bert(built=False), target="v5e-8"), 5, "scope").state == PASS


def test_a_model_without_a_factory_leaves_the_scope_open(no_compiler):
    model = dense()
    assert the(preflight(model, batches(), "v5e-1"), 5, "scope").state == WARN
    same = preflight(lambda: (model, batches()), target="v5e-1")
    assert "same model twice" in the(same, 5, "scope").finding
    with tf.distribute.OneDeviceStrategy("/cpu:0").scope():
        under, _ = ready()()
    with pytest.raises(CourseError, match="under a OneDeviceStrategy"):
        preflight(under, batches(), "v5e-1")
