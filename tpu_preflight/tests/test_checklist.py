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
    told = []
    result = preflight(ready(), target="v5e-8", progress=told.append)
    assert result.summary.endswith(f" (tf-keras) for v5e-8: ready ({len(result.items)} pass)")
    assert {item.check for item in result.items} == {1, 2, 3, 4, 5, 6, 7}
    assert told[0] == "making the model" and len(told) == len(set(told)) >= 4


def test_a_model_without_an_optimizer_and_a_signature_without_data_will_do(no_compiler):
    model = tf.keras.Sequential([tf.keras.layers.Input([8]), tf.keras.layers.Dense(4)])
    model.preprocess_samples = lambda x, y: (tf.strings.to_number(x), y)  # KerasHub's fit maps it
    result = preflight(model, batches().map(lambda x, y: (tf.strings.as_string(x), y)), "v5e-8")
    assert "forward pass" in the(result, 4).name and result.status == "ready"
    assert preflight(tf.function(mean, input_signature=VECTOR), target="v5e-1").status == "ready"


@LINUX
@pytest.mark.parametrize("only", [False, True], ids=["keras", "only_a_function"])
def test_a_factorys_arguments_are_varied_as_if_each_were_asked_alone(only):
    def build(n=1):
        return tf.function(sum, [VECTOR * n]) if only else (dense(keras), batches(8 * n))

    with pytest.raises(PreflightError, match="no rows to vary"):
        preflight(build, target="v5e-8", vary={"rows": [4]})
    report = preflight(build, target="v5e-8", vary={"n": [4]})
    (told,) = (item.finding for item in report.items if item.name == "n=4 on v5e-8")
    (alone,) = preflight(lambda: build(4), target="v5e-8").estimates
    assert alone.flops != report.estimates[0].flops and f"; {flop(alone.flops)}, " in told


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
