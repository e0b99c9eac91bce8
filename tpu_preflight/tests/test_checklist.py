"""The whole checklist, and what it takes."""

import jax
import keras
import pytest
import tensorflow as tf
from small_models import LINUX, VECTOR, batches, dense, mean, ready, the

from tpu_preflight.checklist import preflight
from tpu_preflight.errors import PreflightError
from tpu_preflight.estimate.step import flop

pytestmark = pytest.mark.slow


def test_what_is_right_is_ready_and_progress_is_told_once_a_step(no_compiler):
    lines = []
    report = preflight(ready(), target="v5e-8", progress=lines.append)
    assert report.summary.endswith(f" (tf-keras) for v5e-8: ready ({len(report.items)} pass)")
    assert {item.check for item in report.items} == {1, 2, 3, 4, 5, 6, 7}
    assert lines[0] == "making the model"
    assert len(lines) == len(set(lines)) >= 4


def test_a_model_without_an_optimizer_and_a_signature_without_data_will_do(no_compiler):
    layers = tf.keras.layers
    model = tf.keras.Sequential([layers.Input([8]), layers.Dense(4)])
    # KerasHub's fit maps it.
    model.preprocess_samples = lambda x, y: (tf.strings.to_number(x), y)
    data = batches().map(lambda x, y: (tf.strings.as_string(x), y))
    report = preflight(model, data, "v5e-8")
    assert "forward pass" in the(report, 4).name
    assert report.status == "ready"
    assert preflight(tf.function(mean, input_signature=VECTOR), target="v5e-1").status == "ready"


def model_factory(n=1):
    return dense(keras), batches(8 * n)


def function_factory(n=1):
    return tf.function(sum, [VECTOR * n])


@LINUX
@pytest.mark.parametrize(
    "build",
    [
        pytest.param(model_factory, id="keras", marks=pytest.mark.long),
        pytest.param(function_factory, id="function"),
    ],
)
def test_a_factorys_arguments_are_varied_as_if_each_were_asked_alone(build):
    with pytest.raises(PreflightError, match="no rows to vary"):
        preflight(build, target="v5e-8", vary={"rows": [4]})
    report = preflight(build, target="v5e-8", vary={"n": [4]})
    (item,) = [item for item in report.items if item.name == "n=4 on v5e-8"]
    (estimate,) = preflight(lambda: build(4), target="v5e-8").estimates
    assert estimate.flops != report.estimates[0].flops
    assert f"; {flop(estimate.flops)}, " in item.finding


@pytest.mark.parametrize(
    ("subject", "data", "target", "says"),
    [
        (3, VECTOR, "v5e-8", "type int"),
        (lambda: None, None, "v5e-8", r"<lambda> \(test_checklist.py, line \d+\) returned None"),
        (lambda: (dense(), 1, 2), None, "v5e-8", "returned a value of type tuple"),
        (type("Torch", (), {"__module__": "torch.nn"})(), VECTOR, "v5e-8", "This is PyTorch"),
        (jax.jit(mean), None, "v5e-1", "no arguments"),
    ],
)
def test_what_cannot_be_checked(subject, data, target, says):
    with pytest.raises(PreflightError, match=says):
        preflight(subject, data, target)
