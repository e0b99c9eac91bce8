"""The time of a step, with Google's compiler."""

import pytest
import tensorflow as tf
from small_models import LINUX, answer

from tpu_preflight import compiler
from tpu_preflight.checklist import preflight
from tpu_preflight.estimate import timing

pytestmark = pytest.mark.long


@LINUX
def test_the_line_that_takes_the_time_is_named_with_its_gradient():
    weight = tf.Variable(tf.ones([1024, 1024]))

    def step(x):
        with tf.GradientTape() as tape:
            y = x @ weight
            loss = tf.reduce_sum(tf.tanh(y) ** 2)
        weight.assign_sub(0.1 * tape.gradient(loss, weight))
        return loss

    told, specs = [], (tf.TensorSpec([4096, 1024]),)
    report = preflight(step, specs, "v5e-1", profile=True, progress=told.append)
    assert report.status == "ready" and "v5e-1, with full effort, minutes: compiling" in told
    (found,) = report.timings
    first = found.lines[0]
    assert first.name.endswith("y = x @ weight") and first.share > 0.5
    least = report.estimates[0].bound_ms
    assert least <= found.ms and 0.9 * least <= found.low_ms <= found.high_ms
    assert "published runs" in found.factor and found.exchanges == ()
    assert 0 < found.busy <= 1 and found.missing == 0
    for table in (found.operations, found.layers, found.lines):
        assert sum(row.ms for row in table) == pytest.approx(found.ms)
        assert len(table) <= timing.SHOWN + 1
    assert found.operations[0].name in ("MatMul", "matmul")


def test_what_does_not_compile_with_full_effort_has_no_time(no_compiler, monkeypatch):
    asked = []

    def compile(program, target, effort="least", progress=None):
        asked.append(effort)
        verdict = "compiles" if effort == "least" else "timed out"
        return answer(verdict, peak_bytes=1000)(program, target)

    monkeypatch.setattr(compiler, "compile", compile)
    report = preflight(lambda x: x + 1.0, (tf.TensorSpec([8]),), "v5e-1", profile=True)
    assert asked == ["least", "full"] and report.timings == ()
