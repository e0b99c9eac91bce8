"""Check 9: what a pipeline gives, stage by stage, against what a step needs."""

import time

import numpy as np
import pytest
import tensorflow as tf
from small_models import batches, dense, found, mean, the

from tpu_preflight.checklist import preflight
from tpu_preflight.checks import input as keeping_up
from tpu_preflight.errors import PreflightError
from tpu_preflight.estimate.input import Need, Rate, Stage
from tpu_preflight.estimate.step import Estimate, Timing
from tpu_preflight.report import OPEN, PASS, WARN, Report

SLEEP = 0.01  # seconds a row


def sleeping(x):
    time.sleep(SLEEP)
    return x


def slow(x):
    return tf.ensure_shape(tf.numpy_function(sleeping, [x], tf.float32), [4])


ROWS = tf.data.Dataset.from_tensor_slices(np.ones([64, 4], "float32"))


def test_the_stage_that_sleeps_is_named_with_its_line():
    data = ROWS.shuffle(8).enumerate().map(lambda number, x: slow(x)).batch(8).prefetch(1)
    rate = keeping_up.measure(data, seconds=1.0)
    names = ["tensorslice", "shuffle", "zip", "map", "batch", "prefetch"]
    assert [stage.name for stage in rate.stages] == names
    assert rate.slowest.name == "map" and "numpy_function" in rate.slowest.where
    assert rate.slowest.wall > SLEEP * 1e6 / 2 > rate.slowest.processor
    assert rate.per_second < 1.5 / SLEEP
    assert "map" in repr(rate) and "not on a TPU" in rate._repr_html_()
    # What makes rows of files is one stage with what it reads.
    files = tf.data.Dataset.range(4).interleave(lambda i: ROWS).batch(8, drop_remainder=True)
    stages = keeping_up.measure(files, seconds=0.2).stages
    assert [stage.name for stage in stages] == ["interleave", "batch"]


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (ROWS.take(0).batch(8), "empty"),
        (tf.data.Dataset.from_tensors(1.0), "no common first size"),
        (ROWS.map(lambda x: tf.debugging.check_numerics(x / 0, "broken")).batch(8), "broken"),
    ],
)
def test_what_cannot_be_timed_says_why(data, says):
    with pytest.raises(PreflightError, match=says):
        keeping_up.measure(data)


def test_a_pipeline_that_never_comes_is_left_alone(monkeypatch):
    monkeypatch.setattr(keeping_up, "PATIENCE", 0.1)
    with pytest.raises(PreflightError, match="is slow"):
        keeping_up.measure(ROWS.map(slow).batch(64).map(lambda x: slow(x[0])).repeat(9).batch(9))


GIVES = Rate(1000.0, 800.0, 2, (Stage("map", "data.py:3", 900.0, 20.0),))


@pytest.mark.parametrize(
    ("low", "high", "node", "key", "state"),
    [
        (0, 400, False, "it keeps up.", PASS),
        (300, 3000, False, "only with many cores", WARN),
        (1e6, 2e6, False, "does not keep up", WARN),
        (0, 1e7, False, "does not keep up", WARN),
        (1e4, 2e4, False, "only with many cores", WARN),
        (1e4, 2e4, True, "does not keep up", WARN),
    ],
)
def test_the_verdict_leaves_room_on_both_sides(low, high, node, key, state):
    item = keeping_up.judged(GIVES, Need("v5e-8", low, high, "estimated time"), node)
    assert item.state == state and key in item.finding and "Not confirmed" in item.finding
    assert ("data.py:3" in item.where) == (state == WARN)


def test_a_need_comes_from_the_estimate_or_else_from_the_bound():
    estimate = Estimate("v3-8", 8, 16, 1.0, 1.0, 1, 2, compute_ms=4.0, memory_ms=2.0)
    bound = keeping_up.need(estimate, None)
    assert (bound.low, bound.high) == (0, 128 / 0.004)
    timed = keeping_up.need(estimate, Timing("v3-8", 8.0, 10.0, 16.0, "", 0.5, 0, (), (), ()))
    assert (timed.low, timed.high) == (128 / 0.016, 128 / 0.010)


@pytest.mark.slow
def test_a_report_shows_it_where_it_is_asked_for(no_compiler):
    result = preflight(dense(), batches(), "v5e-8", input_rate=True)
    assert the(result, 9).state in (PASS, WARN) and result.rate.stages
    assert Report.from_json(result.json()) == result and "rows a second" in repr(result)
    assert not found(preflight(dense(), batches(), "v5e-8"), 9)
    only_shapes = preflight(mean, (tf.TensorSpec([8]),), "v5e-1", input_rate=True)
    assert the(only_shapes, 9).state == OPEN
