"""The preflight: each check passes what is right, names what is wrong, and changes nothing."""

import contextlib
import importlib
import importlib.metadata
import io
import json
import os
import pathlib
import subprocess
import sys

import keras
import numpy as np
import psutil
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from transformers import BertConfig, T5Config, TFBertForMaskedLM, TFT5ForConditionalGeneration

from helpers.base import files
from helpers.base.errors import CourseError
from helpers.preflight import answers, pipeline, report
from helpers.preflight import apart as preflight_child
from helpers.preflight.checklist import preflight
from helpers.preflight.report import FAIL, OPEN, PASS, WARN, Estimate, Item, Report
from helpers.xla import tpu_compiler

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))


def answer(verdict, **fields):
    """A compiler that gives this answer to everything."""

    def compile(program, target, **options):
        available = tpu_compiler.available_bytes(target)
        return tpu_compiler.Compiled(
            program.name, target, verdict, available_bytes=available, **fields
        )

    return compile


@pytest.fixture
def no_compiler(monkeypatch):
    """Most checks need no word of the TPU's compiler."""
    monkeypatch.setattr(tpu_compiler, "compile", answer("compiles", peak_bytes=1000))
    monkeypatch.setattr(tpu_compiler, "started", contextlib.nullcontext)


def dense(kind=tf.keras, dropout=0.0, last=None, **options):
    last = last or kind.layers.Dense(4)
    model = kind.Sequential([kind.layers.Input([8]), kind.layers.Dropout(dropout), last])
    loss = kind.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss, metrics=["accuracy"], **options)
    return model


def rows(labels=None, number=64, dtype="float32"):
    x = np.random.default_rng(0).normal(size=[number, 8]).astype(dtype)
    return x, np.zeros([number], "int32") if labels is None else np.asarray(labels, "int32")


def batches(size=16, drop_remainder=True, **options):
    return tf.data.Dataset.from_tensor_slices(rows(**options)).batch(
        size, drop_remainder=drop_remainder
    )


def states(result, check, word=""):
    return [
        item.state
        for item in result.items
        if item.check == check and (word in item.name or word in item.finding)
    ]


def the(result, check, word=""):
    (item,) = [
        item
        for item in result.items
        if item.check == check and (word in item.name or word in item.finding)
    ]
    return item


# --- the report ---------------------------------------------------------------------------------

words = st.text(max_size=20)
items = st.builds(
    Item,
    check=st.sampled_from(sorted(report.CHECKS)),
    name=words,
    state=st.sampled_from(report.STATES),
    finding=words,
    fix=words,
    where=words,
    decisive=st.booleans(),
)
estimates = st.builds(
    Estimate,
    target=words,
    replicas=st.integers(1, 32),
    rows=st.none() | st.integers(1, 999),
    flops=st.floats(0, 1e15),
    bytes=st.floats(0, 1e12),
    peak_bytes=st.integers(0, 10**11),
    available_bytes=st.integers(1, 10**11),
    compute_ms=st.floats(0, 1e4),
    memory_ms=st.floats(0, 1e4),
    all_reduce_bytes=st.none() | st.integers(0, 10**9),
    largest_rows=st.none() | st.integers(1, 999),
)
reports = st.builds(
    Report,
    subject=words,
    targets=st.lists(words, min_size=1, max_size=3).map(tuple),
    items=st.lists(items, max_size=6).map(tuple),
    estimates=st.lists(estimates, max_size=3).map(tuple),
)


@given(reports)
def test_json_keeps_everything(given_report):
    assert Report.from_json(given_report.json()) == given_report
    assert json.loads(given_report.json())["status"] == given_report.status


@given(reports)
def test_the_status_is_the_worst_that_was_found(given_report):
    found = {item.state for item in given_report.items}
    undecided = any(i.state == OPEN and i.decisive for i in given_report.items)
    expected = 1 if FAIL in found else 2 if undecided else 0
    assert given_report.exit_status == expected
    assert given_report.status == ("ready", "not ready", "can't tell")[expected]
    assert given_report.status in given_report.summary


@given(reports)
@settings(max_examples=30, deadline=None)
def test_every_form_shows_every_item(given_report):
    console = Console(record=True, width=200, file=io.StringIO())
    console.print(given_report)
    shown = console.export_text()
    page = given_report._repr_html_()
    for item in given_report.items:
        assert item.finding in repr(given_report)
        assert report.SIGNS[item.state] in shown and item.state in page


def test_the_page_stands_alone_and_follows_the_readers_theme(tmp_path):
    item = Item(1, "<b>", FAIL, "a < b & c", "fix <it>", "x = y  # <")
    Report("model", ("v5e-8",), (item,)).save_html(tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert "<b>" not in page.replace("<body>", "") and "a &lt; b &amp; c" in page
    assert "http" not in page and "src=" not in page
    assert 'name="color-scheme" content="light dark"' in page and "#" not in page.split("<main>")[0]


def test_a_page_that_cannot_be_written_says_so(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(files.CantWrite):
        Report("model", ("v5e-8",), ()).save_html(tmp_path / "file" / "report.html")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"subject": 1}'])
def test_another_text_is_no_report(text):
    with pytest.raises(CourseError, match="no report of a preflight"):
        Report.from_json(text)


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0 FLOP"), (1000, "1 kFLOP"), (999.6e9, "1 TFLOP"), (2.77e12, "2.77 TFLOP")],
)
def test_numbers_are_short(number, text):
    assert report.flop(number) == text


# --- the pipeline -------------------------------------------------------------------------------


def test_generators_and_python_functions_are_found_wherever_they_hide():
    def generator():
        yield 1

    from_generator = tf.data.Dataset.from_generator(
        generator, output_signature=tf.TensorSpec([], tf.int32)
    )
    number = tf.data.Dataset.range(4)
    python = number.map(lambda x: tf.numpy_function(lambda v: v, [x], tf.int64)).batch(2)

    @tf.function
    def inner(x):
        return tf.py_function(lambda v: v, [x], tf.int64)

    nested = number.interleave(lambda x: tf.data.Dataset.from_tensors(x).map(inner)).prefetch(1)
    both = tf.data.Dataset.zip((from_generator, python))
    kinds = {
        name: [call.what for call in pipeline.parts(dataset).python]
        for name, dataset in locals().items()
        if isinstance(dataset, tf.data.Dataset)
    }
    assert kinds["from_generator"] == ["a generator"]
    assert kinds["python"] == ["a Python function"] and kinds["nested"] == ["a Python function"]
    assert sorted(kinds["both"]) == ["a Python function", "a generator"] and kinds["number"] == []
    assert "python = number.map(" in pipeline.parts(python).python[0].where


def test_files_are_found_also_inside_an_interleave(tmp_path):
    path = tmp_path / "part-0.tfrecord"
    with tf.io.TFRecordWriter(str(path)) as writer:
        writer.write(b"x")
    names = tf.data.Dataset.from_tensor_slices([str(path), "gs://bucket/part-1.tfrecord"])
    for dataset in (tf.data.TFRecordDataset(names), names.interleave(tf.data.TFRecordDataset)):
        parts = pipeline.parts(dataset)
        assert parts.reads_files and parts.local == (str(path),)
        assert parts.remote == ("gs://bucket/part-1.tfrecord",)
    in_memory = pipeline.parts(names.map(tf.strings.length))
    assert not in_memory.reads_files and in_memory.local == in_memory.remote == ()


@given(st.lists(st.integers(1, 4), min_size=1, max_size=12), st.integers(1, 12))
@settings(max_examples=25, deadline=None)
def test_a_sample_counts_shapes(widths, most):
    dataset = tf.data.Dataset.from_tensor_slices(widths).map(lambda n: tf.zeros([n]))
    found = pipeline.sample(dataset, most, 60.0)
    seen = widths[:most]
    assert found.shapes == {((n,),): seen.count(n) for n in dict.fromkeys(seen)}
    assert found.ended == (most >= len(widths)) and found.length == len(widths)
    assert all(batch[0].shape == (widths[0],) for batch in found.batches)


def test_a_sample_ends_in_time_and_reports_errors():
    endless = tf.data.Dataset.range(3).repeat()
    slow = pipeline.sample(endless, 10**9, 0.2)
    assert slow.slow and slow.length == -1 and not slow.ended

    def breaks():
        yield 1
        raise ValueError("no more")

    spec = tf.TensorSpec([], tf.int32)
    broken = pipeline.sample(tf.data.Dataset.from_generator(breaks, output_signature=spec), 9, 9.0)
    assert broken.seen == 1 and "no more" in broken.error


# --- check 1 ------------------------------------------------------------------------------------


def test_what_is_right_is_ready(no_compiler):
    result = preflight(lambda: (dense(), batches()), target="v5e-8")
    assert result.status == "ready" and not result.find(FAIL) and not result.find(WARN)
    assert {item.check for item in result.items} == {1, 2, 3, 4, 5, 6, 7}


def with_python(x):
    return tf.numpy_function(np.sin, [x], tf.float32)


def with_value(x):
    return tf.range(tf.cast(x[0], tf.int32))


def with_unique(x):
    return tf.reduce_sum(tf.unique(x).y)


@tf.autograph.experimental.do_not_convert
def with_bool(x):
    return x if tf.reduce_sum(x) > 0 else -x


@pytest.mark.parametrize(
    ("fn", "says", "line", "fix"),
    [
        (with_python, "PyFunc", "tf.numpy_function(np.sin", "input pipeline"),
        (with_value, "depends on a value", "tf.range(tf.cast(x[0]", "static shape"),
        (with_bool, "Python `bool`", "if tf.reduce_sum(x) > 0", "tf.where"),
    ],
)
def test_what_is_refused_is_named_with_its_line(fn, says, line, fix, no_compiler):
    result = preflight(fn, (tf.TensorSpec([8]),), "v5e-1")
    item = the(result, 1)
    assert item.state == FAIL and says in item.finding and line in item.where and fix in item.fix
    assert result.exit_status == 1 and states(result, 6) == states(result, 7) == [OPEN]


def test_a_size_from_values_warns_with_its_bound(no_compiler):
    item = the(preflight(with_unique, (tf.TensorSpec([8]),), "v5e-1"), 1, "data-dependent")
    assert item.state == WARN and "f32[<=8]" in item.finding and "tf.unique(x)" in item.where


# --- checks 2 and 3 -----------------------------------------------------------------------------


def mean(x, *rest):
    return tf.reduce_mean(tf.cast(x, tf.float32))


def ragged_widths(widths):
    return tf.data.Dataset.from_tensor_slices(widths).map(lambda n: tf.zeros([8, n]))


@pytest.mark.parametrize(
    ("widths", "state", "says"),
    [
        ([3, 3, 3], PASS, "1 set of shapes in all 3 batches"),
        ([3, 4, 3], WARN, "2 compilations"),
        (list(range(1, 11)), FAIL, "10 compilations"),
    ],
)
def test_shapes_are_counted(widths, state, says, no_compiler):
    item = the(preflight(mean, ragged_widths(widths), "v5e-1"), 2, "compilations in")
    assert item.state == state and says in item.finding


def test_a_dataset_longer_than_the_sample_promises_no_more_than_was_seen(no_compiler):
    result = preflight(mean, ragged_widths([3, 3, 3, 4, 4]), "v5e-1", batches=2)
    assert "so far" in the(result, 2, "compilations in").finding
    assert the(result, 2, "promises").state == WARN


@pytest.mark.parametrize(
    ("value", "state", "says"),
    [
        (["a"] * 16, FAIL, "holds text"),
        (np.zeros([16], "complex128"), FAIL, "complex128"),
        (np.zeros([16], "float64"), WARN, "imitates"),
        (tf.ragged.constant([[1], [1, 2]] * 8), FAIL, "RaggedTensor"),
    ],
)
def test_types_that_a_tpu_has_not(value, state, says, no_compiler):
    dataset = tf.data.Dataset.from_tensor_slices({"good": np.zeros([16], "f"), "bad": value})
    is_ragged = isinstance(value, tf.RaggedTensor)
    dataset = dataset.ragged_batch(8) if is_ragged else dataset.batch(8)
    item = the(preflight(lambda row: row["good"], dataset, "v5e-8"), 3, "tensor bad")
    assert item.state == state and says in item.finding


@pytest.mark.parametrize(("size", "state"), [(16, PASS), (20, FAIL)])
def test_the_batch_is_divided_by_the_replicas(size, state, no_compiler):
    item = the(preflight(mean, batches(size, number=80), "v5e-8"), 3, "over 8 replicas")
    assert item.state == state
    assert "24" in item.fix if state == FAIL else "2 for each" in item.finding


def test_one_replica_needs_no_division(no_compiler):
    assert states(preflight(mean, batches(20, number=80), "v5e-1"), 3, "replicas") == []


@pytest.mark.parametrize(
    ("dataset", "state"),
    [
        (lambda: batches(16), PASS),
        (lambda: batches(24, drop_remainder=False), WARN),  # 64 rows: 24, 24, 16
        (lambda: batches(16, drop_remainder=False), PASS),  # 64 rows divide
        (lambda: batches(24, drop_remainder=False).repeat(), WARN),
    ],
)
def test_the_remainder_of_an_epoch(dataset, state, no_compiler):
    assert the(preflight(mean, dataset(), "v5e-8"), 3, "remainder").state == state


@pytest.mark.parametrize(("node", "state"), [(False, WARN), (True, FAIL)])
def test_a_generator_is_fatal_on_a_node_only(node, state, no_compiler):
    def generator():
        yield from np.zeros([16, 8], "f")

    dataset = tf.data.Dataset.from_generator(generator, output_signature=tf.TensorSpec([8]))
    result = preflight(mean, dataset.batch(8, drop_remainder=True), "v5e-1", node=node)
    item = the(result, 3, "Python in the pipeline")
    assert item.state == state and "from_generator" in item.where


@pytest.mark.parametrize(("node", "state"), [(False, PASS), (True, FAIL)])
def test_a_file_on_this_disk_is_out_of_a_nodes_sight(node, state, tmp_path, no_compiler):
    path = tmp_path / "rows.tfrecord"
    with tf.io.TFRecordWriter(str(path)) as writer:
        for _ in range(8):
            writer.write(tf.io.serialize_tensor(tf.zeros([8])).numpy())

    def parse(record):
        return tf.ensure_shape(tf.io.parse_tensor(record, tf.float32), [8])

    dataset = tf.data.TFRecordDataset(str(path)).map(parse).batch(4, drop_remainder=True)
    item = the(preflight(mean, dataset, "v5e-1", node=node), 3, "files")
    assert item.state == state and "rows.tfrecord" in item.finding
    assert str(tmp_path) not in item.finding


def test_a_dataset_that_raises_and_one_that_is_empty(no_compiler):
    def breaks():
        raise ValueError("no such row")
        yield

    spec = tf.TensorSpec([8])
    broken = tf.data.Dataset.from_generator(breaks, output_signature=spec).batch(8)
    item = the(preflight(mean, broken, "v5e-1"), 3, "reading it")
    assert item.state == FAIL and "no such row" in item.finding
    with pytest.raises(CourseError, match="no batch"):
        preflight(mean, batches(100), "v5e-1")


# --- check 4 ------------------------------------------------------------------------------------


def test_a_label_out_of_range_is_caught_on_real_data(no_compiler):
    labels = [0] * 40 + [-100] + [0] * 23  # in the third batch
    result = preflight(lambda: (dense(), batches(labels=labels)), target="v5e-8")
    item = the(result, 4, "batch 3")
    assert item.state == FAIL and "-100" in item.finding and "loss nan" in item.finding


def test_an_index_out_of_range_is_caught(no_compiler):
    table = tf.Variable(tf.ones([4, 2]))

    def look_up(i):
        return tf.gather(table, i)

    good = tf.data.Dataset.from_tensors(tf.constant([0, 3]))
    bad = tf.data.Dataset.from_tensors(tf.constant([0, 4]))
    assert the(preflight(look_up, good, "v5e-1"), 4).state == PASS
    item = the(preflight(look_up, bad, "v5e-1"), 4)
    assert item.state == FAIL and "TensorFlow raises" in item.finding


def test_another_answer_is_caught(no_compiler):
    def last_above_zero(x):
        return x[x > 0][-1]

    dataset = tf.data.Dataset.from_tensors(tf.constant([1.0, 2.0, -1.0, -2.0]))
    item = the(preflight(last_above_zero, dataset, "v5e-1"), 4)
    assert item.state == FAIL and "eager 2, compiled" in item.finding


def test_what_is_not_finite_anywhere_is_caught(no_compiler):
    dataset = tf.data.Dataset.from_tensors(tf.constant([0.0, 1.0]))
    item = the(preflight(tf.math.log, dataset, "v5e-1"), 4)
    assert item.state == FAIL and "not finite" in item.finding


def test_a_dropped_assertion_warns_with_its_line(no_compiler):
    def guarded(x):
        tf.debugging.assert_less(x, 100.0)
        return x * 2.0

    item = the(preflight(guarded, (tf.TensorSpec([8]),), "v5e-1"), 4, "checks inside")
    assert item.state == WARN and "assert_less" in item.where


def test_random_numbers_are_no_difference(no_compiler):
    def noise(x):
        return x + tf.random.stateless_normal([8], [1, 2])

    dataset = tf.data.Dataset.from_tensors(tf.zeros([8]))
    assert the(preflight(noise, dataset, "v5e-1"), 4).state == OPEN
    for kind in (tf.keras, keras):
        result = preflight(lambda: (dense(kind, dropout=0.5), batches()), target="v5e-1")  # noqa: B023
        item = the(result, 4, "test step")
        assert item.state == PASS and "3 real batches" in item.finding


def test_a_step_that_draws_is_never_compared_by_luck(no_compiler):
    def hardly_noise(x):
        return x + 1e-9 * tf.random.normal([8])

    dataset = tf.data.Dataset.from_tensors(tf.ones([8]))
    assert the(preflight(hardly_noise, dataset, "v5e-1"), 4).state == OPEN


@pytest.mark.parametrize("limit", ["MANY_PARAMETERS", "MANY_VALUES"])
def test_of_what_is_large_a_few_rows_are_compared(limit, no_compiler, monkeypatch):
    monkeypatch.setattr(answers, limit, 10)
    item = the(preflight(lambda: (dense(), batches()), target="v5e-1"), 4)
    assert item.state == PASS and item.name.startswith("test step on 4 rows")
    bad = lambda: (dense(), batches(labels=[0, 0, 0, -100] * 16))  # noqa: E731
    assert the(preflight(bad, target="v5e-1"), 4).state == FAIL


def test_a_test_step_that_fails_leaves_the_comparison_open(no_compiler):
    class Odd(tf.keras.Sequential):
        def test_step(self, data):
            raise KeyError("no test step here")

    layers = [tf.keras.layers.Input([8]), tf.keras.layers.Dropout(0.5), tf.keras.layers.Dense(4)]
    model = Odd(layers)
    model.compile("sgd", tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    result = preflight(model, batches(), "v5e-1")
    item = the(result, 4)
    assert item.state == OPEN and "no test step here" in item.finding
    assert "raise KeyError" in item.where and result.status == "ready"


@pytest.mark.parametrize("kind", [tf.keras, keras], ids=["tf_keras", "keras3"])
def test_the_model_holds_what_it_held_before(kind, no_compiler):
    model = dense(kind)
    model.fit(batches(), shuffle=False, verbose=0)
    before = [*model.get_weights(), int(model.optimizer.iterations)]
    preflight(model, batches(), "v5e-8")
    after = [*model.get_weights(), int(model.optimizer.iterations)]
    assert all(map(np.array_equal, before, after)) and after[-1] == 4


# --- the second call ------------------------------------------------------------------------------


def logarithm(x):
    return tf.math.log(x)


@pytest.mark.parametrize(
    "change",
    [
        lambda model: setattr(model.layers[-1], "activation", logarithm),
        lambda model: setattr(model.layers[-1], "factor", float("nan")),
        lambda model: model.set_weights([np.full_like(w, np.nan) for w in model.get_weights()]),
        lambda model: model.compile("adam", lambda y, p: tf.math.log(-tf.square(p))),
    ],
    ids=["activation", "attribute", "weights", "compile"],
)
@pytest.mark.parametrize("kind", [tf.keras, keras], ids=["tf_keras", "keras3"])
def test_a_changed_model_gets_a_new_verdict(kind, change, no_compiler):
    class Scaled(kind.layers.Dense):
        factor = 1.0

        def call(self, x):
            return super().call(x) * self.factor

    model = dense(kind, last=Scaled(4))
    assert states(preflight(model, batches(), "v5e-1"), 4) == [PASS]
    change(model)
    assert states(preflight(model, batches(), "v5e-1"), 4) == [FAIL]


# --- check 5 ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [tf.keras, keras], ids=["tf_keras", "keras3"])
def test_jit_compile_left_on(kind, no_compiler):
    on = preflight(lambda: (dense(kind, jit_compile=True), batches()), target="v5e-1")
    assert the(on, 5, "jit_compile").state == FAIL and on.status == "not ready"
    off = preflight(lambda: (dense(kind), batches()), target="v5e-1")
    assert the(off, 5, "jit_compile").state == PASS
    marked = preflight(tf.function(mean, jit_compile=True), batches(), "v5e-1")
    assert the(marked, 5, "jit_compile").state == WARN


@pytest.mark.parametrize("kind", [tf.keras, keras], ids=["tf_keras", "keras3"])
def test_an_optimizer_from_outside_the_scope(kind, no_compiler):
    outside = kind.optimizers.Adam()

    def build():
        model = dense(kind)
        model.compile(outside, "mse")
        x, _ = rows()
        data = tf.data.Dataset.from_tensor_slices((x, x[:, :4])).batch(16, drop_remainder=True)
        return model, data

    item = the(preflight(build, target="v5e-1"), 5, "scope")
    assert item.state == FAIL and "optimizer" in item.finding


def test_a_metric_from_outside_the_scope(no_compiler):
    metric = tf.keras.metrics.SparseCategoricalAccuracy()

    def build():
        model = dense()
        model.compile("adam", "mse", metrics=[metric])
        return model, batches()

    item = the(preflight(build, target="v5e-1"), 5, "scope")
    assert item.state == FAIL and "Metric" in item.finding and "model.compile" in item.where


def test_a_model_that_is_not_built_yet_has_nothing_outside(no_compiler):
    model, data = bert()
    config = model.config

    def unbuilt():
        model = TFBertForMaskedLM(config)
        model.compile("adam")
        return model, data

    assert the(preflight(unbuilt, target="v5e-8"), 5, "scope").state == PASS


def test_a_model_without_an_optimizer_is_checked_forward(no_compiler):
    model = tf.keras.Sequential([tf.keras.layers.Input([8]), tf.keras.layers.Dense(4)])
    result = preflight(model, batches(), "v5e-8")
    assert "forward pass" in the(result, 4).name and result.status == "ready"


def test_a_model_without_a_factory_leaves_the_scope_open(no_compiler):
    model = dense()
    assert the(preflight(model, batches(), "v5e-1"), 5, "scope").state == WARN
    same = preflight(lambda: (model, batches()), target="v5e-1")
    assert "same model twice" in the(same, 5, "scope").finding
    with tf.distribute.OneDeviceStrategy("/cpu:0").scope():
        under = dense()
    with pytest.raises(CourseError, match="OneDeviceStrategy"):
        preflight(under, batches(), "v5e-1")


# --- what the compiler says ---------------------------------------------------------------------


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
    monkeypatch.setattr(tpu_compiler, "compile", answer(verdict, message="as it says"))
    result = preflight(lambda: (dense(), batches()), target="v5e-8")
    item = the(result, check, "as it says")
    assert item.state == state and result.status == status and not result.estimates


def test_memory_near_the_limit_warns(monkeypatch):
    monkeypatch.setattr(tpu_compiler, "compile", answer("compiles", peak_bytes=int(15.5 * 2**30)))
    assert the(preflight(mean, (tf.TensorSpec([8]),), "v5e-1"), 6).state == WARN


def test_without_the_compiler_the_rest_is_checked(monkeypatch):
    version = importlib.metadata.version

    def hidden(name):
        if name in ("jax", "jaxlib", "libtpu"):
            raise importlib.metadata.PackageNotFoundError(name)
        return version(name)

    monkeypatch.setattr(importlib.metadata, "version", hidden)
    monkeypatch.setitem(sys.modules, "jax", None)
    monkeypatch.setitem(sys.modules, "libtpu", None)
    result = preflight(lambda: (dense(), batches(20)), target="v5e-8")
    item = the(result, 1, "for v5e-8")
    assert item.state == OPEN and "python -m pip install jax" in item.finding
    assert the(result, 3, "over 8 replicas").state == FAIL
    assert states(result, 4) == [PASS] and states(result, 6) == states(result, 7) == [OPEN]
    assert preflight(lambda: (dense(), batches()), target="v5e-8").status == "can't tell"


def conv_net():
    model = tf.keras.Sequential(
        [
            tf.keras.layers.Input([16, 16, 3]),
            tf.keras.layers.Conv2D(8, 3, padding="same", activation="relu"),
            tf.keras.layers.BatchNormalization(),
            tf.keras.layers.GlobalAveragePooling2D(),
            tf.keras.layers.Dense(10),
        ]
    )
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("sgd", loss, metrics=["accuracy"])
    x = np.random.default_rng(0).normal(size=[32, 16, 16, 3]).astype("float32")
    dataset = tf.data.Dataset.from_tensor_slices((x, np.arange(32) % 10))
    return model, dataset.batch(16, drop_remainder=True)


def bert():
    config = BertConfig(
        vocab_size=300,
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=16,
    )
    model = TFBertForMaskedLM(config)
    model.compile(tf.keras.optimizers.Adam(1e-4))
    ids = np.random.default_rng(0).integers(5, 300, [16, 16], np.int32)
    model(ids[:1])
    batch = {"input_ids": ids, "labels": np.where(ids % 7 == 0, ids, -100)}
    return model, tf.data.Dataset.from_tensors(batch)


def t5():
    config = T5Config(
        vocab_size=300,
        d_model=32,
        d_kv=16,
        d_ff=64,
        num_layers=1,
        num_heads=2,
        decoder_start_token_id=0,
    )
    model = TFT5ForConditionalGeneration(config)
    model.compile(tf.keras.optimizers.Adam(1e-4))
    ids = np.random.default_rng(0).integers(5, 300, [16, 16], np.int32)
    model(input_ids=ids[:1], labels=ids[:1, :8])
    return model, tf.data.Dataset.from_tensors({"input_ids": ids, "labels": ids[:, :8]})


@pytest.mark.parametrize("build", [conv_net, bert, t5, lambda: (dense(keras), batches())])
def test_googles_compiler_agrees_and_its_numbers_can_be_counted_by_hand(build):
    model, _ = build()
    result = preflight(build, target=["v5e-8", "v3-8"])
    assert result.status == "ready", repr(result)
    parameters = sum(int(np.prod(v.shape)) for v in model.trainable_variables)
    for estimate in result.estimates:
        assert estimate.replicas == 8 and estimate.rows == 2
        assert parameters * 4 <= estimate.all_reduce_bytes <= parameters * 4 + 100
        assert 4 * parameters < estimate.peak_bytes < estimate.available_bytes


def test_dense_flops_are_two_for_each_weight_and_row():
    def product(x):
        return x @ tf.ones([1024, 512])

    result = preflight(product, (tf.TensorSpec([256, 1024]),), "v5e-1")
    assert np.isclose(result.estimates[0].flops, 2 * 256 * 1024 * 512, rtol=0.05)


def test_the_largest_batch_is_told_with_its_reason(monkeypatch):
    def one(child, program, target, timeout, effort, progress):
        rows, available = program.arguments[0].shape, tpu_compiler.available_bytes(target)
        needed = 10**7 * int(rows.removeprefix("f32[").partition(",")[0])
        verdict = "compiles" if needed <= available else "out of memory"
        fields = {"peak_bytes": needed, "available_bytes": available, "flops": needed}
        return tpu_compiler.Compiled(program.name, target, verdict, **fields)

    monkeypatch.setattr(tpu_compiler.ask, "one", one)
    told = []
    result = preflight(
        lambda: (dense(), batches()), target="v5e-1", largest_batch=True, progress=told.append
    )
    item, rows = the(result, 6, "largest"), result.estimates[0].largest_rows
    assert 0.85 <= rows * 10**7 / tpu_compiler.available_bytes("v5e-1") <= 1 and rows % 8 == 0
    assert item.state == PASS and item.finding.startswith(f"{rows} rows on each replica. It takes")
    too_wide = preflight(mean, (tf.TensorSpec([2000, 4]),), "v5e-1", largest_batch=True)
    assert states(too_wide, 6) == [FAIL, PASS]  # this batch doesn't fit, a smaller one does
    late = preflight(
        mean, (tf.TensorSpec([16, 4]),), "v5e-1", largest_batch=True, search_seconds=0.0
    )
    assert late.estimates[0].largest_rows == rows  # this compiler takes no time


def test_the_largest_batch_of_a_real_step():
    def wide(x):
        return tf.nn.softmax(x) @ tf.ones([2**17, 8])

    result = preflight(wide, (tf.TensorSpec([64, 2**17]),), "v2-8", largest_batch=True)
    (estimate,) = result.estimates
    assert 0.5 < estimate.largest_rows * 2**19 / estimate.available_bytes <= 1
    late = preflight(
        wide, (tf.TensorSpec([64, 2**17]),), "v3-8", largest_batch=True, search_seconds=0.0
    )
    item = the(late, 6, "largest")
    assert item.state == OPEN and "timed out" in item.finding


# --- what can't be checked ----------------------------------------------------------------------


def test_what_is_no_model_and_what_comes_without_data():
    with pytest.raises(CourseError, match="type int"):
        preflight(3, batches())
    with pytest.raises(CourseError, match="no data"):
        preflight(dense())
    with pytest.raises(CourseError, match="v9-8"):
        preflight(dense(), batches(), "v9-8")


def test_a_signature_is_data_enough(no_compiler):
    signed = tf.function(mean, input_signature=[tf.TensorSpec([8])])
    assert preflight(signed, target="v5e-1").status == "ready"


def test_progress_is_told_once_a_step(no_compiler):
    told = []
    preflight(lambda: (dense(), batches()), target="v5e-1", progress=told.append)
    assert told[0] == "making the model" and len(told) == len(set(told)) >= 4


# --- the command --------------------------------------------------------------------------------

MODULE = """
import os, signal, sys, time
print("noise on stdout")
print("noise on stderr", file=sys.stderr)

def build():
    import numpy as np, tensorflow as tf
    print("more noise")
    model = tf.keras.Sequential([tf.keras.layers.Input([8]), tf.keras.layers.Dense(4)])
    model.compile("sgd", "mse")
    data = np.ones([64, 8], "f"), np.ones([64, 4], "f")
    return model, tf.data.Dataset.from_tensor_slices(data).batch(SIZE, drop_remainder=True)

SIZE = 16

def forks():
    os.fork()
    return build()

def dies():
    os.kill(os.getpid(), signal.SIGSEGV)

def never():
    import tensorflow as tf

    def step(x):
        while True:
            time.sleep(0.1)

    return step, (tf.TensorSpec([3]),)

def leaves():
    sys.exit(3)

def hungry():
    taken = []
    while len(taken) < 400:
        taken.append(b"x" * 10**7)
        time.sleep(0.01)

def nothing():
    return 3, 4
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _left() -> list[psutil.Process]:
    """The children that are at work; multiprocessing's own, of another test, stay."""
    family = psutil.Process().children(recursive=True)
    return [p for p in family if "-m helpers." in " ".join(p.cmdline())]


@pytest.mark.parametrize(
    ("name", "timeout", "says"),
    [
        ("mine:dies", 60, "SIGSEGV, while making the model"),
        ("mine:leaves", 60, "status 3, while making the model"),
        ("mine:never", 12, "time limit of 12 s"),
    ],
)
def test_code_that_dies_or_never_returns_is_a_result(name, timeout, says, module):
    result = preflight_child.apart(name, ["v5e-8"], timeout=timeout)
    assert result.status == "can't tell" and says in result.items[0].finding
    assert not _left()


def test_code_that_takes_too_much_memory_is_ended(module):
    result = preflight_child.apart("mine:hungry", ["v5e-8"], memory_limit=2_500_000_000)
    told = "more than 2.5 GB of this machine's memory, while making the model"
    assert result.status == "can't tell" and told in result.items[0].finding
    assert not _left()


def test_code_that_imports_tensorflow_and_jax_first_is_checked_like_any_other(module):
    (module / "mine.py").write_text("import tensorflow, jax\n" + MODULE)
    result = preflight_child.apart("mine:build", ["v5e-8"])
    assert result.status == "ready" and result.estimates


def test_code_that_forks_answers_once(module):
    result = preflight_child.apart("mine:forks", ["v5e-8"])
    assert result.status == "ready" and result.estimates


@pytest.mark.parametrize(
    ("name", "error", "says"),
    [
        ("mine", CourseError, "module and a name"),
        ("mine:nope", CourseError, "build, dies"),
        ("absent:build", CourseError, "ModuleNotFoundError"),
        ("mine:nothing", CourseError, "type int"),
    ],
)
def test_names_that_lead_nowhere(name, error, says, module):
    with pytest.raises(error, match=says):
        preflight_child.apart(name, ["v5e-8"])


def test_the_command_writes_json_and_a_page_and_nothing_else(module):
    command = [sys.executable, "-m", "helpers", "preflight", "mine:build", "--json"]
    ran = subprocess.run(
        [*command, "--html", "report.html"],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        timeout=120,
    )
    result = Report.from_json(ran.stdout)
    assert ran.returncode == 0 and result.status == "ready", ran.stderr
    assert all(line.startswith("preflight: ") for line in ran.stderr.splitlines()), ran.stderr
    assert "<main>" in (module / "report.html").read_text()


def test_the_commands_exit_status_says_not_ready(module):
    (module / "mine.py").write_text(MODULE.replace("SIZE = 16", "SIZE = 20"))
    command = [sys.executable, "-m", "helpers", "preflight", "mine:build", "-t", "v5e-8"]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "120"}
    ran = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)
    assert ran.returncode == 1 and "can't be divided by 8" in ran.stdout
    assert "noise" not in ran.stdout + ran.stderr
