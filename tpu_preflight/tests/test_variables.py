"""Check 6 before anything is traced: what the variables alone take."""

import keras
import pytest
import tensorflow as tf
from small_models import batches, dense, found, the

from tpu_preflight import compiler
from tpu_preflight.checklist import preflight
from tpu_preflight.checks import variables
from tpu_preflight.program import NotCompilable
from tpu_preflight.report import FAIL
from tpu_preflight.text import size

pytestmark = pytest.mark.slow

OLD = tf.keras.optimizers.legacy
WEIGHTS = (8 * 4 + 4) * 4  # bytes of the one dense layer


# The slots of the papers: a momentum, two moments, three with AMSGrad.
@pytest.mark.parametrize(
    ("kind", "optimizer", "slots"),
    [
        (tf.keras, tf.keras.optimizers.SGD(), 1),  # tf-keras makes momenta even without momentum
        (tf.keras, tf.keras.optimizers.SGD(momentum=0.9), 1),
        (tf.keras, tf.keras.optimizers.Adam(), 2),
        (tf.keras, tf.keras.optimizers.Adam(amsgrad=True), 3),
        (tf.keras, OLD.SGD(), 0),
        (tf.keras, OLD.Adam(), 2),
        (keras, keras.optimizers.Adam(), 2),
    ],
)
def test_variables_that_fit_nowhere_are_told_by_arithmetic(kind, optimizer, slots, monkeypatch):
    model = kind.Sequential([kind.layers.Input([8]), kind.layers.Dense(4)])
    model.compile(optimizer, "mse")
    needed = WEIGHTS * (1 + slots)
    monkeypatch.setattr(compiler, "available_bytes", lambda target: needed)
    variables.check(model, [("v5e-8", 8)])
    monkeypatch.setattr(compiler, "available_bytes", lambda target: needed - 1)
    with pytest.raises(NotCompilable, match=f"need {size(needed)}"):
        variables.check(model, [("v5e-8", 8)])


def test_a_model_that_fits_nowhere_is_made_once(no_compiler, monkeypatch):
    calls = []

    def build():
        calls.append(1)
        return dense(), batches()

    monkeypatch.setattr(compiler, "available_bytes", lambda target: 100)
    report = preflight(build, target=["v5e-8", "v3-8"])
    item = the(report, 6, "variables alone")
    assert item.state == FAIL and "2 more of each" in item.finding
    assert len(calls) == 1 and not found(report, 1) and report.status == "not ready"
