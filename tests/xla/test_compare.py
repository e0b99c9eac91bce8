"""Who accepts a function, who refuses it, in which words."""

import re

import numpy as np
import pytest
import tensorflow as tf

from helpers.base.errors import CourseError
from helpers.xla.compare import Comparison, Row, compare
from tpu_preflight import compiler

pytestmark = pytest.mark.slow

SIX = tf.constant([1.0, 2, 3, 4, 5, 6])
UNIQUE = (
    "Detected unsupported operations on XLA_CPU_JIT: UniqueWithCounts "
    "(No registered 'UniqueWithCounts' OpKernel for XLA_CPU_JIT devices)"
)


def halve_if_large(x):
    if tf.reduce_sum(x) > 10:
        x = x / 2.0
    return x


WITHOUT_AUTOGRAPH = tf.autograph.experimental.do_not_convert(halve_if_large)


def with_assert(x):
    tf.debugging.assert_less(x, 2.0)
    return x * 1.0


@pytest.mark.parametrize(
    ("fn", "args", "layers", "words"),
    [
        (WITHOUT_AUTOGRAPH, [SIX], "– tracing tracing", "OperatorNotAllowedInGraphError: Using a "),
        (lambda x: x / (1 / 0), [SIX], "Python tracing tracing", "division by zero"),
        (lambda x: tf.unique_with_counts(x)[0], [SIX], "– – XLA", UNIQUE),
        (lambda x: x * 2, [tf.TensorSpec([None])], "– – XLA", "Only support static input shape"),
        (with_assert, [SIX], "TensorFlow TensorFlow –", "Condition x < y did not hold"),
        # Called with the tensor itself, this passes on a CPU and fails on a TPU.
        (tf.range, [tf.constant(4)], "– – XLA", "must be a compile-time constant"),
    ],
)
def test_who_refuses_and_in_which_words(fn, args, layers, words):
    table = compare(fn, *args)
    assert [row.refused_by or "–" for row in table.rows] == layers.split()
    assert "✗" in repr(table)
    for row in table.rows:
        assert not row.refused_by or words in row.message
        assert len(row.message) <= 151  # without a traceback, and nothing of this machine
        assert not re.search(r"[\w-]/[\w-]+/|0x|_\d{2,}|\.py", row.message)


@pytest.mark.parametrize(
    ("fn", "arg", "eager", "graph", "xla"),
    [
        (lambda x: (x[x > 2.5], x), SIX, "f32[4] f32[6]", "f32[?] f32[6]", "f32[<=6] f32[6]"),
        (lambda x: {"b": x, "a": (tf.size(x), x > 3)}, SIX, *["s32[] pred[6] f32[6]"] * 3),
        (lambda x: x + 1, np.arange(3), *["s64[3]"] * 3),
        (lambda x: tf.cast(x, tf.bfloat16), SIX, *["bf16[6]"] * 3),
    ],
)
def test_shapes_as_each_layer_knows_them(fn, arg, eager, graph, xla):
    table = compare(fn, arg)
    assert [" ".join(row.shapes) for row in table.rows] == [eager, graph, xla]
    assert "✗" not in repr(table)


def test_a_changed_variable_is_no_result():
    total = tf.Variable(0.0)

    def add(x):
        total.assign_add(tf.reduce_sum(x))
        return x[0] * 2.0

    table = compare(add, SIX)
    assert table["XLA:CPU"].shapes == ("f32[]",)
    assert "✗" not in repr(table)
    assert total.numpy() == 3 * 21


ONE = np.ones(2, np.float32)


@pytest.mark.parametrize(
    ("left", "right", "equal"),
    [
        (np.float32([1.0, np.nan]), [np.float32([1.0, np.nan])], True),
        (np.float32([1.0]), [np.float32([1.00001])], True),
        (np.float32([1.0]), [np.float32([1.001])], False),
        (np.int32([10**6]), [np.int32([10**6 + 1])], False),
        (ONE, [ONE[:1]], False),
        (ONE, [ONE.astype(float)], False),
        (ONE, [ONE, ONE], False),
    ],
)
def test_same_means_same_type_number_and_values_up_to_rounding(left, right, equal):
    eager = Row("eager", shapes=("f32[?]",), values=(left,))
    xla = Row("XLA:CPU", shapes=("f32[?]",), values=tuple(right))
    assert ("✗" not in repr(Comparison("f", (eager, xla)))) is equal


def test_the_table_is_short_and_tells_each_refusal_once():
    values = np.float32([1 / 3, 1e-9]), np.arange(100)
    eager = Row("eager", shapes=("f32[2]", "s64[100]"), values=values)
    cpu = Row("XLA:CPU", refused_by="XLA", message="a < b")
    tpu = Row("TPU v5e", refused_by="XLA", message="a < b")
    table = Comparison("<lambda>", (eager, cpu, tpu))
    lines = repr(table).splitlines()
    assert lines[0] == "<lambda>"
    assert "[0.3333 0], [0 1 ... 98 99]" in lines[2]
    assert lines[4].split() == ["TPU", "v5e", "✗", "refused", "by", "XLA", "–", "–"]
    assert lines[5:] == ["XLA:CPU, TPU v5e: a < b"]
    assert "&lt;lambda&gt;" in table._repr_html_()


@pytest.mark.parametrize(
    ("fn", "args", "words"),
    [
        (lambda x, n: x[:n], (SIX, 3), "Argument 2 is of type int"),
        (lambda x: None, (SIX,), "Result 1 of the function is None"),
        (lambda x: (x, None), (tf.TensorSpec([2]),), "Result 2 of the function is None"),
    ],
)
def test_bad_input_is_told(fn, args, words):
    with pytest.raises(CourseError, match=words):
        compare(fn, *args)


@pytest.mark.parametrize(
    ("fn", "x", "answer", "verdict", "message"),
    [
        (halve_if_large, SIX, ("compiles", ""), "✓ accepted", ""),
        (
            halve_if_large,
            SIX,
            ("refused", "UNIMPLEMENTED: type: %dot.3 = s64[2] dot(...)"),
            "✗ refused by the compiler of TPU v5e",
            "UNIMPLEMENTED: type",
        ),
        (halve_if_large, SIX, ("not available", "no jax"), "not run", "no jax"),
        # What is refused before has a reason of its own.
        (tf.range, tf.constant(4), None, "✗ refused by XLA", "must be a compile-time constant"),
        (WITHOUT_AUTOGRAPH, SIX, None, "✗ refused by tracing", "Using a symbolic `tf.Tensor`"),
    ],
)
def test_the_row_of_a_tpu_says_what_its_compiler_answers(
    monkeypatch, fn, x, answer, verdict, message
):
    def compile(program, target):
        return compiler.Compiled(program.name, target, *answer)

    monkeypatch.setattr(compiler, "compile", compile)
    table = compare(fn, x, target="v5e-1")
    row = table["TPU v5e"]
    assert table.verdict(row) == verdict
    assert row.values is None
    assert message in row.message
    assert "%" not in row.message
    assert row.shapes == (("f32[6]",) if verdict == "✓ accepted" else ())
    assert ("✗" in repr(table)) == ("✗" in verdict)
