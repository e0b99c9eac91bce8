"""Who accepts a function, who refuses it, in which words; and XLA's programs by hand."""

import re

import numpy as np
import pytest
import tensorflow as tf

from helpers.base.errors import CourseError
from helpers.xla.compare import Comparison, Row, compare, hlo
from tpu_preflight import compiler

pytestmark = pytest.mark.slow

SIX = tf.constant([1.0, 2, 3, 4, 5, 6])


def halve_if_large(x):
    if tf.reduce_sum(x) > 10:
        x = x / 2.0
    return x


WITHOUT_AUTOGRAPH = tf.autograph.experimental.do_not_convert(halve_if_large)


def unfinished(x):
    if tf.reduce_sum(x) > 10:
        y = x
    return y


def with_assert(x):
    tf.debugging.assert_less(x, 2.0)
    return x * 1.0


def in_python(x):
    return tf.py_function(lambda y: y, [x], tf.float32)


# --- who accepts, who refuses, with what


BOOL = "Using a symbolic `tf.Tensor` as a Python `bool` is not allowed."
UNIQUE = (
    "Detected unsupported operations on XLA_CPU_JIT: UniqueWithCounts "
    "(No registered 'UniqueWithCounts' OpKernel for XLA_CPU_JIT devices)"
)


@pytest.mark.parametrize(
    ("fn", "args", "layers", "words"),
    [
        (WITHOUT_AUTOGRAPH, [SIX], "– tracing tracing", f"OperatorNotAllowedInGraphError: {BOOL}"),
        (unfinished, [SIX], "– tracing tracing", "'y' must also be initialized in the else branch"),
        (lambda x: x / (1 / 0), [SIX], "Python tracing tracing", "division by zero"),
        (lambda x: tf.unique_with_counts(x)[0], [SIX], "– – XLA", UNIQUE),
        (lambda x: x * 2, [tf.TensorSpec([None])], "– – XLA", "Only support static input shape"),
        (with_assert, [SIX], "TensorFlow TensorFlow –", "Condition x < y did not hold"),
        (
            tf.gather,
            [SIX, np.int32([0, 7])],
            "TensorFlow TensorFlow –",
            "indices[1] = 7 is not in [",
        ),
    ],
)
def test_who_refuses_and_in_which_words(fn, args, layers, words):
    table = compare(fn, *args)
    assert [row.refused_by or "–" for row in table.rows] == layers.split()
    assert not table.agree
    for row in table.rows:
        assert not row.refused_by or words in row.message
        assert len(row.message) <= 151  # without a traceback, and nothing of this machine
        assert not re.search(r"[\w-]/[\w-]+/|0x|_\d{2,}|\.py", row.message)


@pytest.mark.parametrize(
    ("fn", "size"),
    [
        (lambda n: tf.range(n), 4),
        (lambda shape: tf.reshape(SIX, shape), [2, 3]),
    ],
)
def test_sizes_are_not_folded_out_of_the_tensors_at_hand(fn, size):
    # Called with the tensor itself, both pass on a CPU and fail on a TPU.
    tf.function(fn, jit_compile=True)(tf.constant(size))
    row = compare(fn, tf.constant(size))["XLA:CPU"]
    assert row.refused_by == "XLA"
    assert "must be a compile-time constant" in row.message


# --- shapes and values


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
    assert table.agree


def test_a_changed_variable_is_no_result():
    total = tf.Variable(0.0)

    def add(x):
        total.assign_add(tf.reduce_sum(x))
        return x[0] * 2.0

    table = compare(add, SIX)
    assert table["XLA:CPU"].shapes == ("f32[]",)
    assert table.agree
    assert total.numpy() == 3 * 21


def test_specs_alone_give_verdicts_without_values():
    table = compare(tf.unique, tf.TensorSpec([4], tf.int32))
    assert [table.verdict(row) for row in table.rows] == ["not run", "accepted", "accepted"]
    assert table["XLA:CPU"].shapes == ("s32[<=4]", "s32[4]")
    assert all(row.values is None for row in table.rows)
    assert compare(in_python, SIX)["graph"].shapes == ("f32[…]",)  # an open rank


ONE = np.ones(2, np.float32)


@pytest.mark.parametrize(
    ("left", "right", "equal"),
    [
        (np.float32([1.0, np.nan]), [np.float32([1.0, np.nan])], True),
        (np.float32([1.0]), [np.float32([1.00001])], True),
        (np.float32([1.0]), [np.float32([1.001])], False),
        (np.int32([10**6]), [np.int32([10**6 + 1])], False),
        (ONE, [ONE[:1]], False),
        (ONE, [ONE, ONE], False),
    ],
)
def test_same_means_same_type_number_and_values_up_to_rounding(left, right, equal):
    rows = Row("eager", ("f32[?]",), (left,)), Row("XLA:CPU", ("f32[?]",), tuple(right))
    assert Comparison("f", rows).agree is equal


# --- the table


def test_the_table_as_text_and_as_html_is_aligned_short_and_escaped():
    values = np.float32([1 / 3, 1e-9]), np.arange(100), np.array([b"ab"], object)
    eager = Row("eager", ("f32[2]", "s64[100]"), values)
    table = Comparison("<lambda>", (eager, Row("TPU v5e", refused_by="XLA", message="a < b")))
    lines = repr(table).splitlines()
    assert "[0.3333 0], [0 1 ... 98 99], ['ab']" in lines[1]
    assert lines[2].split() == ["TPU", "v5e", "refused", "by", "XLA", "–", "–"]
    assert lines[3] == "  a < b"
    text = table._repr_html_()
    assert "&lt;lambda&gt;" in text and ">a &lt; b</small>" in text
    assert ">✗ refused by XLA</strong>" in text


# --- bad input


def table_of_a_resource():
    pairs = tf.lookup.KeyValueTensorInitializer([1, 2], [3, 4])
    table = tf.lookup.StaticHashTable(pairs, default_value=-1)
    return compare(lambda x: table.lookup(x), tf.constant([1, 2]))


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda: compare(lambda x, n: x[:n], SIX, 3), "Argument 2 is of type int"),
        (lambda: compare(lambda x: None, SIX), "Result 1 of the function is None"),
        (lambda: compare(lambda x: (x, None), tf.TensorSpec([2])), "Result 2 of the function is N"),
        (table_of_a_resource, "neither argument nor variable"),
    ],
)
def test_bad_input_is_told(ask, words):
    with pytest.raises(CourseError, match=words):
        ask()


# --- the row of a TPU's compiler


@pytest.fixture
def with_tpu(monkeypatch):
    """Compare with a TPU whose compiler gives this answer about a real program of ours."""

    def asked(fn, x, verdict, message=""):
        def compile(program, target):
            return compiler.Compiled(program.name, target, verdict, message)

        monkeypatch.setattr(compiler, "compile", compile)
        table = compare(fn, x, target="v5e-1")
        assert [row.how for row in table.rows][3] == "TPU v5e"
        return table, table["TPU v5e"]

    return asked


def test_a_tpu_that_accepts_agrees_and_shows_the_shape_without_values(with_tpu):
    table, row = with_tpu(halve_if_large, SIX, "compiles")
    assert table.agree and row.shapes == ("f32[6]",) and row.values is None
    assert "TPU v5e" in repr(table) and table.verdict(row) == "accepted"


def test_a_tpu_that_refuses_is_named(with_tpu):
    message = "UNIMPLEMENTED: not for this type: %dot.3 = s64[2] dot(...)"
    table, row = with_tpu(halve_if_large, SIX, "refused", message)
    assert not table.agree and row.refused_by == "the compiler of TPU v5e"
    assert row.message == "UNIMPLEMENTED: not for this type"


def test_a_tpu_compiler_that_gives_no_answer_has_no_say(with_tpu):
    missing = "not available", "jax is not installed"
    table, row = with_tpu(halve_if_large, SIX, *missing)
    assert table.verdict(row) == "not run" and table.agree
    assert "jax is not installed" in repr(table)
    wrong, row = with_tpu(lambda x: x[x > 0][-1], np.float32([3, -1, 3, 2]), *missing)
    assert wrong.verdict(row) == "not run" and not wrong.agree


def test_what_xla_refuses_is_not_asked_of_the_tpu(with_tpu):
    table, row = with_tpu(tf.range, tf.constant(4), "compiles")
    assert (row.refused_by, row.message) == ("XLA", table["XLA:CPU"].message)
    assert with_tpu(WITHOUT_AUTOGRAPH, SIX, "compiles")[1].refused_by == "tracing"


# --- hlo


def test_hlo_is_the_same_everywhere():
    program = hlo(lambda x: (tf.unique(x).y, halve_if_large(x)), SIX)
    assert "f32[<=6]" in program.text
    assert "conditional(" in program.text
    assert ".py" not in program.text + program.optimized


def test_hlo_passes_a_refusal_on():
    with pytest.raises(ValueError, match="compile-time constant"):
        hlo(lambda n: tf.range(n), tf.constant(3))
