"""The time of a step, with Google's compiler."""

import pytest
import tensorflow as tf
from small_models import LINUX, answer, the

from tpu_preflight import compiler
from tpu_preflight.checklist import preflight
from tpu_preflight.estimate import timing
from tpu_preflight.report import OPEN

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

    stages = []
    specs = (tf.TensorSpec([4096, 1024]),)
    report = preflight(step, specs, "v5e-1", profile=True, progress=stages.append)
    assert report.status == "ready"
    assert "v5e-1, with full effort (minutes): compiling" in stages
    (step_time,) = report.timings
    longest = step_time.lines[0]
    assert longest.name.endswith("y = x @ weight")
    assert longest.share > 0.5
    least_ms = report.estimates[0].bound_ms
    assert least_ms <= step_time.ms
    assert 0.9 * least_ms <= step_time.low_ms <= step_time.high_ms
    assert "published runs" in step_time.factor
    assert step_time.exchanges == ()
    assert 0 < step_time.busy <= 1
    assert step_time.missing == 0
    for table in (step_time.operations, step_time.layers, step_time.lines):
        assert sum(row.ms for row in table) == pytest.approx(step_time.ms)
        assert len(table) <= timing.SHOWN + 1
    assert step_time.operations[0].name in ("MatMul", "matmul")


def test_what_does_not_compile_with_full_effort_has_no_time_and_says_why(no_compiler, monkeypatch):
    efforts = []

    def compile(program, target, effort="least", progress=None):
        efforts.append(effort)
        verdict = "compiles" if effort == "least" else "timed out"
        return answer(verdict, peak_bytes=1000, message="as it says")(program, target)

    monkeypatch.setattr(compiler, "compile", compile)
    report = preflight(lambda x: x + 1.0, (tf.TensorSpec([8]),), "v5e-1", profile=True)
    assert efforts == ["least", "full"]
    assert report.timings == ()
    item = the(report, 7, "profile on v5e-1")
    assert item.state == OPEN
    assert "'timed out': as it says" in item.finding
    assert report.status == "ready"


def test_a_program_that_another_libtpu_writes_in_another_way_is_no_crash(no_compiler, monkeypatch):
    def read(compiled, find):
        raise KeyError("estimated_cycles")

    monkeypatch.setattr(timing, "read", read)
    report = preflight(lambda x: x + 1.0, (tf.TensorSpec([8]),), "v5e-1", profile=True)
    item = the(report, 7, "profile on v5e-1")
    assert item.state == OPEN
    assert "estimated_cycles" in item.finding
    assert report.timings == ()
    assert report.status == "ready"
