import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from hypothesis import given, settings
from hypothesis.extra import numpy as hnp

from helpers.base.settings import ENVIRONMENT, ROOT
from helpers.tpu.layout import shape_bytes
from helpers.xla import compare as xla
from helpers.xla.compare import Comparison, Row, compare, hlo
from helpers.xla.compilations import count_compilations
from helpers.xla.profiler import ProfilerBusy

SIX = tf.constant([1.0, 2, 3, 4, 5, 6])


def halve_if_large(x):
    if tf.reduce_sum(x) > 10:
        x = x / 2.0
    return x


def with_assert(x):
    tf.debugging.assert_less(x, 2.0)
    return x * 1.0


# --- compare: who accepts, who refuses, with what


def test_all_three_agree():
    table = compare(halve_if_large, SIX)
    assert [row.how for row in table.rows] == ["eager", "graph", "XLA:CPU"]
    assert [table.verdict(row) for row in table.rows] == ["reference", "same", "same"]
    assert table.agree
    for row in table.rows:
        np.testing.assert_array_equal(row.values[0], [0.5, 1, 1.5, 2, 2.5, 3])
        assert row.shapes == ("f32[6]",)


def test_tracing_refuses_without_autograph():
    table = compare(tf.autograph.experimental.do_not_convert(halve_if_large), SIX)
    assert table["eager"].refused_by == ""
    for how in ("graph", "XLA:CPU"):
        assert table[how].refused_by == "tracing"
        assert table[how].message == (
            "OperatorNotAllowedInGraphError: "
            "Using a symbolic `tf.Tensor` as a Python `bool` is not allowed."
        )
    assert not table.agree


def test_autograph_errors_show_the_error_not_the_traceback():
    def unfinished(x):
        if tf.reduce_sum(x) > 10:
            y = x
        return y

    message = compare(unfinished, SIX)["graph"].message
    assert message == "ValueError: 'y' must also be initialized in the else branch"


def test_errors_inside_a_keras_layer_show_the_error_not_the_call():
    layer = tf_keras.layers.Lambda(halve_if_large)
    message = compare(lambda x: layer(x), SIX)["graph"].message
    assert message == "Using a symbolic `tf.Tensor` as a Python `bool` is not allowed."


def test_xla_refuses_an_operation_without_a_kernel():
    row = compare(lambda x: tf.unique_with_counts(x)[0], SIX)["XLA:CPU"]
    assert row.refused_by == "XLA"
    assert row.message == (
        "Detected unsupported operations on XLA_CPU_JIT: UniqueWithCounts "
        "(No registered 'UniqueWithCounts' OpKernel for XLA_CPU_JIT devices)"
    )


@pytest.mark.parametrize(
    ("fn", "args"),
    [
        (lambda n: tf.range(n), [tf.constant(4)]),
        (lambda x, s: tf.reshape(x, s), [SIX, tf.constant([2, 3])]),
        (lambda n: tf.zeros([n]), [tf.constant(4)]),
        (lambda x, n: tf.repeat(x, n), [SIX, tf.constant(2)]),
    ],
)
def test_sizes_are_not_folded_out_of_the_tensors_at_hand(fn, args):
    # Called with the tensors themselves, all of these pass on a CPU and fail on a TPU.
    tf.function(fn, jit_compile=True)(*args)
    row = compare(fn, *args)["XLA:CPU"]
    assert row.refused_by == "XLA"
    assert "must be a compile-time constant" in row.message


def test_tensorflow_refuses_when_it_runs_and_xla_answers():
    table = compare(lambda x, i: tf.gather(x, i), SIX, tf.constant([0, 7]))
    for how in ("eager", "graph"):
        assert table[how].refused_by == "TensorFlow"
        assert table[how].message == "indices[1] = 7 is not in [0, 6)"
    assert table.verdict(table["XLA:CPU"]) == "differs: eager refuses"
    assert not table.agree


def test_a_failed_assertion_is_told_by_its_own_words():
    table = compare(with_assert, SIX)
    assert table["eager"].message == "Condition x < y did not hold."
    assert table["graph"].message.startswith("assertion failed: [Condition x < y did not hold")
    assert table["XLA:CPU"].refused_by == ""


def test_python_errors_of_an_eager_run_are_told_as_such():
    table = compare(lambda x: x / (1 / 0), SIX)
    assert [row.refused_by for row in table.rows] == ["Python", "tracing", "tracing"]
    assert table["eager"].message == "division by zero"


def test_xla_refuses_while_it_runs():
    row = compare(lambda x, i: x[i], SIX, tf.constant(9))["XLA:CPU"]
    assert row.refused_by == "XLA"
    assert row.message == "slice index 9 of dimension 0 out of bounds."


def test_messages_hold_nothing_of_this_machine():
    def long_way(x):
        return tf.py_function(lambda y: y, [tf.unique_with_counts(x)[0]], tf.float32)

    for row in compare(long_way, SIX).rows:
        assert not re.search(r"[\w-]/[\w-]+/|0x|_\d{2,}|\.py", row.message)
        assert len(row.message) <= 151


# --- compare: shapes and values


def test_shapes_as_each_layer_knows_them():
    table = compare(lambda x: (x[x > 2.5], tf.size(x)), SIX)
    assert table["eager"].shapes == ("f32[4]", "s32[]")
    assert table["graph"].shapes == ("f32[?]", "s32[]")
    assert table["XLA:CPU"].shapes == ("f32[<=6]", "s32[]")
    assert table.agree


def test_an_open_rank_is_shown():
    def unknown(x):
        return tf.py_function(lambda y: y, [x], tf.float32)

    assert compare(unknown, SIX)["graph"].shapes == ("f32[…]",)


def test_a_changed_variable_is_no_result():
    total = tf.Variable(0.0)

    def add(x):
        total.assign_add(tf.reduce_sum(x))
        return x[0] * 2.0

    table = compare(add, SIX)
    assert table["XLA:CPU"].shapes == ("f32[]",)
    assert table.agree
    assert total.numpy() == 3 * 21


def test_nested_results_are_listed_in_order():
    table = compare(lambda x: {"b": x, "a": (tf.size(x), x > 3)}, SIX)
    assert table["XLA:CPU"].shapes == ("s32[]", "pred[6]", "f32[6]")
    assert table.agree


def test_specs_alone_give_verdicts_without_values():
    table = compare(tf.unique, tf.TensorSpec([4], tf.int32))
    assert [table.verdict(row) for row in table.rows] == ["not run", "accepted", "accepted"]
    assert table["XLA:CPU"].shapes == ("s32[<=4]", "s32[4]")
    assert all(row.values is None for row in table.rows)


def test_a_spec_with_an_open_dimension_is_refused():
    row = compare(lambda x: x * 2, tf.TensorSpec([None]))["XLA:CPU"]
    assert row.refused_by == "XLA"
    assert row.message.startswith("Only support static input shape")


def test_numpy_arrays_are_data():
    assert compare(lambda x: x + 1, np.arange(3)).agree


def test_parameters_with_defaults_keep_them():
    def scale(x, factor=2.0, bias=True):
        return x * factor + (1.0 if bias else 0.0)

    table = compare(scale, SIX)
    assert table.agree
    np.testing.assert_array_equal(table["XLA:CPU"].values[0], SIX * 2 + 1)


def test_a_tf_function_is_taken_apart():
    table = compare(tf.function(halve_if_large), SIX)
    assert table.name == "halve_if_large"
    assert table.agree


def test_inner_tf_functions_are_off_in_the_eager_run_only():
    seen = []

    @tf.function
    def inner(x):
        seen.append(tf.executing_eagerly())
        return x * 2

    compare(lambda x: inner(x), SIX)
    assert seen[0] is True
    assert seen[1] is False
    assert not tf.config.functions_run_eagerly()


def test_values_that_differ_are_called_so():
    def grow(x):
        array = tf.TensorArray(tf.float32, size=2, dynamic_size=True)
        for i in range(4):
            array = array.write(i, x[i])
        return array.stack()

    table = compare(grow, SIX)
    assert table.verdict(table["graph"]) == "same"
    assert table.verdict(table["XLA:CPU"]) == "differs"
    assert "differs" in repr(table)
    assert "<strong>differs</strong>" in table._repr_html_()


@pytest.mark.parametrize(
    ("left", "right", "equal"),
    [
        ([1.0, np.nan], [1.0, np.nan], True),
        ([1.0, np.nan], [1.0, 0.0], False),
        ([1.0], [1.00001], True),
        ([1.0], [1.001], False),
        ([1.0, 2.0], [1.0], False),
        ([np.inf], [np.inf], True),
        ([np.inf], [-np.inf], False),
    ],
)
def test_same_means_same_up_to_rounding(left, right, equal):
    rows = tuple(
        Row(how, ("f32[?]",), (np.array(values, np.float32),))
        for how, values in (("eager", left), ("XLA:CPU", right))
    )
    assert Comparison("f", rows).agree is equal


def test_another_type_or_number_of_results_differs():
    one = np.ones(2, np.float32)
    eager = Row("eager", ("f32[2]",), (one,))
    for other in (
        Row("x", ("s32[2]",), (one.astype(np.int32),)),
        Row("x", ("f32[2]",) * 2, (one, one)),
    ):
        assert Comparison("f", (eager, other)).verdict(other) == "differs"


# --- compare: the table


def test_the_text_table_is_aligned():
    table = Comparison(
        "mean",
        (
            Row("eager", ("f32[]",), (np.float32(0.5),)),
            Row("TPU v5e", refused_by="XLA", message="not this way"),
        ),
    )
    assert repr(table).splitlines() == [
        "mean     result  shape  verdict",
        "eager    0.5     f32[]  reference",
        "TPU v5e  –       –      refused by XLA",
        "  not this way",
    ]


def test_the_html_table_says_the_same_and_escapes():
    table = Comparison("<lambda>", (Row("eager", refused_by="Python", message="a < b & c"),))
    text = table._repr_html_()
    assert "&lt;lambda&gt;" in text
    assert "a &lt; b &amp; c" in text
    assert "<strong>refused by Python</strong>" in text


def test_a_rows_result_is_one_line():
    assert Row("eager", refused_by="Python").result == "–"
    assert Row("eager", ("s32[]", "f32[2]"), (np.int32(3), np.ones(2))).result == "3, [1 1]"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (np.float32(1 / 3), "0.3333"),
        (np.float32([1, 1e-9, -1e-9]), "[1 0 0]"),
        (np.float32([np.nan, np.inf]), "[nan inf]"),
        (np.float32([]), "[]"),
        (np.arange(100), "[0 1 ... 98 99]"),
        (np.array([[1, 2], [3, 4]]), "[[1 2] [3 4]]"),
        (np.array([b"ab"], object), "['ab']"),
        (np.array([True]), "[True]"),
    ],
)
def test_values_are_short_and_rounded(value, text):
    assert xla._short(np.asarray(value)) == text


@settings(max_examples=200, deadline=None)
@given(hnp.arrays(np.float32, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=20)))
def test_any_value_fits_in_one_short_line(value):
    text = xla._short(value)
    assert len(text) <= 64
    assert "\n" not in text


# --- compare: bad input


def test_a_python_number_is_no_argument():
    with pytest.raises(xla.NotATensor, match="Argument 2 is of type int"):
        compare(lambda x, n: x[:n], SIX, 3)


def test_a_function_without_return_is_told():
    with pytest.raises(xla.NoResult, match="Result 1 of the function is None"):
        compare(lambda x: None, SIX)
    with pytest.raises(xla.NoResult, match="Result 2 of the function is None"):
        compare(lambda x: (x, None), tf.TensorSpec([2]))


def test_a_lookup_table_is_told():
    pairs = tf.lookup.KeyValueTensorInitializer([1, 2], [3, 4])
    table = tf.lookup.StaticHashTable(pairs, default_value=-1)
    with pytest.raises(xla.CantInspect, match="neither argument nor variable"):
        compare(lambda x: table.lookup(x), tf.constant([1, 2]))


def test_an_unknown_row_is_told():
    with pytest.raises(xla.UnknownRow, match="rows of this comparison are eager, graph, XLA:CPU"):
        compare(halve_if_large, SIX)["TPU"]


# --- hlo


def test_hlo_results_and_bounds():
    program = hlo(lambda x: (tf.unique(x).y, x * 2), SIX)
    assert program.results == ("f32[<=6]", "f32[6]")
    assert repr(program).startswith("Hlo(f32[<=6], f32[6], ")


def test_buffers_of_a_matrix_product_by_hand():
    program = hlo(tf.matmul, tf.TensorSpec([64, 32]), tf.TensorSpec([32, 16]))
    assert program.buffers == ("f32[64,16]",)
    assert program.bytes_written == 64 * 16 * 4


def test_buffers_do_not_count_what_is_fused():
    program = hlo(lambda x: tf.exp(x * 2.0 + 1.0) - x, tf.TensorSpec([100]))
    assert program.buffers == ("f32[100]",)
    assert program.bytes_written == 400


def test_buffers_of_several_results():
    program = hlo(lambda x: tf.math.top_k(x, 3), tf.TensorSpec([64, 32]))
    assert program.buffers[0].startswith("f32[64,3")
    assert program.bytes_written == sum(map(shape_bytes, program.buffers))


def test_hlo_text_is_the_same_everywhere():
    program = hlo(halve_if_large, SIX)
    assert "conditional(" in program.text
    assert ".py" not in program.text + program.optimized


def test_hlo_passes_a_refusal_on():
    with pytest.raises(ValueError, match="compile-time constant"):
        hlo(lambda n: tf.range(n), tf.constant(3))


# --- count_compilations


def test_counts_shapes_not_calls():
    square = tf.function(lambda x: x * x, jit_compile=True)
    with count_compilations() as seen:
        for n in (3, 4, 3, 5, 4):
            square(tf.ones([n]))
    assert seen.count == 3
    assert repr(seen) == "Compilations(3)"


def test_counts_compilations_where_there_is_a_single_trace():
    square = tf.function(
        lambda x: x * x, jit_compile=True, input_signature=[tf.TensorSpec([None], tf.float32)]
    )
    with count_compilations() as seen:
        for n in (3, 4, 5):
            square(tf.ones([n]))
    assert square.experimental_get_tracing_count() == 1
    assert seen.count == 3


def test_counts_nothing_where_xla_is_not_asked():
    double = tf.function(lambda x: x + x)
    with count_compilations() as seen:
        double(tf.ones([2]))
        tf.ones([7]) * 3
    assert seen.count == 0


def test_the_count_is_not_there_before_the_end():
    with count_compilations() as seen:
        assert repr(seen) == "Compilations(counting)"
        with pytest.raises(xla.StillCounting, match="There is no count yet"):
            seen.count  # noqa: B018
    assert seen.count == 0


def test_nesting_is_refused_and_the_outer_block_still_counts():
    square = tf.function(lambda x: x * x, jit_compile=True)
    with count_compilations() as outer:
        with pytest.raises(ProfilerBusy, match="a profiler is running"), count_compilations():
            pass
        square(tf.ones([11]))
    assert outer.count == 1


def test_another_profiler_is_told(tmp_path):
    tf.profiler.experimental.start(str(tmp_path))
    try:
        with pytest.raises(ProfilerBusy, match="a profiler is running"), count_compilations():
            pass
    finally:
        tf.profiler.experimental.stop(save=False)


def test_a_stop_from_inside_is_told():
    with pytest.raises(ProfilerBusy, match="stopped inside the block"), count_compilations():
        tf.profiler.experimental.stop(save=False)


def test_an_error_inside_comes_out_and_the_profiler_is_free_again():
    with pytest.raises(ZeroDivisionError), count_compilations() as seen:
        1 / 0  # noqa: B018
    with pytest.raises(xla.StillCounting):
        seen.count  # noqa: B018
    with count_compilations() as again:
        pass
    assert again.count == 0


DUMP = """
import json, pathlib, sys
import tensorflow as tf
from helpers.xla.compilations import count_compilations

def shapes(signature=None):
    step = tf.function(lambda x: tf.reduce_sum(x * x), jit_compile=True, input_signature=signature)
    return lambda: [step(tf.ones([n])) for n in (2, 3, 4, 2, 3)]

def fit(**options):
    model = tf.keras.Sequential([tf.keras.layers.Dense(2, input_shape=(3,))])
    model.compile("sgd", "mse", jit_compile=True)
    data = tf.data.Dataset.from_tensor_slices((tf.ones([20, 3]), tf.ones([20, 2])))
    return lambda: model.fit(data.batch(8, **options), epochs=2, verbose=0)

cases = {
    "shapes": shapes(),
    "one trace": shapes([tf.TensorSpec([None], tf.float32)]),
    "no jit": lambda: tf.function(lambda x: x + 1)(tf.ones([9])),
    "fit": fit(),
    "fit, whole batches": fit(drop_remainder=True),
}
dump, found = pathlib.Path(sys.argv[1]), {}
for name, run in cases.items():
    before = len(list(dump.glob("*cpu_after_optimizations.txt")))
    with count_compilations() as seen:
        run()
    found[name] = seen.count, len(list(dump.glob("*cpu_after_optimizations.txt"))) - before
print(json.dumps(found))
"""


def test_the_count_agrees_with_xlas_own_dump(tmp_path):
    environment = {
        **os.environ,
        **ENVIRONMENT,
        "XLA_FLAGS": f"--xla_dump_to={tmp_path}",
        "PYTHONPATH": str(ROOT),
    }
    done = subprocess.run(
        [sys.executable, "-c", DUMP, str(tmp_path)],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(done.stdout.splitlines()[-1])
    assert {name: counted for name, (counted, _) in found.items()} == {
        name: dumped for name, (_, dumped) in found.items()
    }
    assert found["shapes"] == [3, 3]
    assert found["one trace"] == [3, 3]
    assert found["no jit"] == [0, 0]
    assert found["fit"][0] > found["fit, whole batches"][0] > 0


# --- the row of a TPU's compiler


@pytest.fixture
def tpu_says(monkeypatch):
    """Set what the TPU's compiler answers; each test says it of a real program of ours."""
    from helpers.xla import tpu_compiler

    def says(verdict, message=""):
        def compile(program, target):
            return tpu_compiler.Compiled(program.name, target, verdict, message)

        monkeypatch.setattr(tpu_compiler, "compile", compile)

    return says


def test_a_tpu_that_accepts_agrees_and_shows_the_shape_without_values(tpu_says):
    tpu_says("compiles")
    table = compare(halve_if_large, SIX, target="v5e-1")
    assert table.agree and [row.how for row in table.rows][3] == "TPU v5e"
    assert table["TPU v5e"].shapes == ("f32[6]",) and table["TPU v5e"].values is None
    assert "TPU v5e" in repr(table) and table.verdict(table.rows[3]) == "accepted"


def test_variables_are_no_results_on_the_tpu(tpu_says):
    tpu_says("compiles")
    count = tf.Variable(1.0)
    table = compare(lambda x: count.assign_add(x) * tf.ones([2]), tf.constant(1.0), target="v3-8")
    assert table["TPU v3"].shapes == table["XLA:CPU"].shapes == ("f32[2]",)


@pytest.mark.parametrize("verdict", ["refused", "out of memory"])
def test_a_tpu_that_refuses_is_named(tpu_says, verdict):
    tpu_says(verdict, "UNIMPLEMENTED: not for this type: %dot.3 = s64[2] dot(...)")
    table = compare(halve_if_large, SIX, target="v5e-1")
    row = table["TPU v5e"]
    assert not table.agree and row.refused_by == "the compiler of TPU v5e"
    assert row.message == "UNIMPLEMENTED: not for this type"


def test_a_tpu_compiler_that_gives_no_answer_has_no_say(tpu_says):
    tpu_says("not available", "jax is not installed")
    table = compare(halve_if_large, SIX, target="v5e-1")
    assert table.verdict(table["TPU v5e"]) == "not run" and table.agree
    assert "jax is not installed" in repr(table)
    wrong = compare(lambda x: x[x > 0][-1], np.float32([3, -1, 3, 2]), target="v5e-1")
    assert wrong.verdict(wrong["TPU v5e"]) == "not run" and not wrong.agree


def test_what_xla_refuses_is_not_asked_of_the_tpu(tpu_says):
    tpu_says("compiles")
    table = compare(tf.range, tf.constant(4), target="v5e-1")
    assert table["TPU v5e"].refused_by == "XLA"
    assert table["TPU v5e"].message == table["XLA:CPU"].message
    plain = tf.autograph.experimental.do_not_convert(halve_if_large)
    assert compare(plain, SIX, target="v5e-1")["TPU v5e"].refused_by == "tracing"
