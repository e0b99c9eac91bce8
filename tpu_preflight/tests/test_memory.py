"""Checks 6 and 7, and the last word on check 1: what Google's compiler says."""

import keras
import numpy as np
import pytest
import small_models as small
import tensorflow as tf
from small_models import VECTOR, answer, mean, the

from tpu_preflight import compiler
from tpu_preflight.checklist import preflight
from tpu_preflight.compiler import client
from tpu_preflight.report import FAIL, OPEN, PASS, WARN
from tpu_preflight.subjects.load_subject import load_subject
from tpu_preflight.subjects.subject import Target

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("verdict", "check", "state", "status"),
    [
        ("refused", 1, FAIL, "not ready"),
        ("out of memory", 6, FAIL, "not ready"),
        ("crashed", 1, OPEN, "can't tell"),
        ("timed out", 1, OPEN, "can't tell"),
        ("not available", 1, OPEN, "can't tell"),
    ],
)
def test_each_verdict_of_the_compiler(verdict, check, state, status, monkeypatch):
    monkeypatch.setattr(compiler, "compile", answer(verdict, message="as it says"))
    report = preflight(mean, VECTOR, "v5e-8")
    item = the(report, check, "as it says")
    assert item.state == state
    assert report.status == status
    assert not report.estimates


def test_memory_near_the_limit_warns(monkeypatch):
    monkeypatch.setattr(compiler, "compile", answer("compiles", peak_bytes=int(15.5 * 2**30)))
    item = the(preflight(mean, VECTOR, "v5e-1"), 6)
    assert item.state == WARN
    assert item.finding.startswith("15.50 GiB of 15.75 GiB on each replica")


@pytest.mark.parametrize(
    ("build", "targets"),
    [
        pytest.param(small.conv_net, "v5e-8 v3-8", marks=pytest.mark.long),
        pytest.param(small.bert, "v5e-8", marks=pytest.mark.long),
        pytest.param(small.ready(keras), "v3-8", marks=pytest.mark.long),
    ],
)
def test_googles_compiler_agrees_and_its_numbers_can_be_counted_by_hand(build, targets):
    model, _ = build()
    report = preflight(build, target=targets.split())
    assert report.status == "ready", repr(report)
    parameters = sum(int(np.prod(variable.shape)) for variable in model.trainable_variables)
    for estimate in report.estimates:
        assert estimate.replicas == 8
        assert estimate.rows == 2
        assert parameters * 4 <= estimate.all_reduce_bytes <= parameters * 4 + 100
        assert 4 * parameters < estimate.peak_bytes < estimate.available_bytes


@pytest.mark.parametrize(("fits", "says"), [(128, "112 rows"), (64, "64 rows"), (1, None)])
def test_where_a_batch_is_too_large_a_smaller_one_is_tried(fits, says, monkeypatch):
    def compile(program, target, **options):
        _, _, dimensions = program.parameters[0].shape.partition("[")
        rows = int(dimensions.rstrip("]"))
        verdict = "compiles"
        if rows > fits:
            verdict = "out of memory"
        return answer(verdict, peak_bytes=rows * 2**30 // 8)(program, target)

    monkeypatch.setattr(compiler, "compile", compile)
    monkeypatch.setattr(client, "compile", compile)
    fix = the(preflight(mean, (tf.TensorSpec([161]),), "v5e-1"), 6).fix
    assert "bfloat16" in fix
    if says is None:
        assert "a smaller batch" not in fix
    else:
        assert f"a smaller batch: {says}" in fix


@pytest.mark.parametrize(
    ("verdict", "largest", "state"),
    [("compiles", 24, PASS), ("out of memory", 0, FAIL), ("timed out", 0, OPEN)],
)
def test_the_largest_batch_is_told_with_its_reason(verdict, largest, state, monkeypatch):
    def search(program_of, target, **options):
        assert program_of(24).parameters[0].shape == "f32[24,4]"
        tried = {24: compiler.Compiled("mean", target, verdict)}
        return compiler.LargestBatch(largest, "For a reason.", tried)

    monkeypatch.setattr(compiler, "compile", answer("compiles", peak_bytes=1000))
    monkeypatch.setattr(compiler, "largest_batch", search)
    report = preflight(mean, (tf.TensorSpec([16, 4]),), "v5e-1", largest_batch=True)
    item = the(report, 6, "largest")
    assert item.state == state
    assert item.finding.endswith("For a reason.")
    assert report.estimates[0].largest_rows == (largest or None)


def test_another_number_of_rows_is_exported_as_the_replicas_run_it():
    """Eight replicas add up a table's gradients whole; a single one sorts the words in them."""
    layers = tf.keras.layers
    embedding = layers.Embedding(50, 8)
    pooling = layers.GlobalAveragePooling1D()
    model = small.classifier(tf.keras, embedding, pooling, layers.Dense(2))

    def loaded(rows):
        specs = tf.TensorSpec([rows, 4], tf.int32), tf.TensorSpec([rows])
        return load_subject(model, specs, 60, print)

    targets = [Target("v5e-8", 8)]
    subject = loaded(64)
    (job,) = subject.export(targets)
    (smaller,) = loaded(16).export(targets)
    assert subject.export_rows(job, 16).hlo == smaller.program.hlo != job.program.hlo
