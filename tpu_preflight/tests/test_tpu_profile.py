"""The compiler's own estimates: read from texts counted by hand, and from programs of libtpu."""

import gzip
import itertools
import pathlib

import numpy as np
import programs
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from programs import compile_all

from tpu_preflight.compiler import Compiled, export, profile
from tpu_preflight.compiler.execution import Exchange, multiplications
from tpu_preflight.compiler.profiling import source


def compiled(text, target="v5e-1", effort="full"):
    return Compiled(
        "step", target, "compiles", effort=effort, _text=gzip.compress(text.encode(), mtime=0)
    )


HLO = pathlib.Path(__file__).with_name("hlo")
TEXT = (HLO / "by_hand.txt").read_text()
TOGETHER = (HLO / "all_reduce.txt").read_text()  # over replicas


def test_a_text_counted_by_hand():
    found = profile(compiled(TEXT))
    cycles = {k.name: round(k.seconds * 1.5e9) for k in found.kernels}
    product = "gradient_tape/net/dense/MatMul/MatMul_1"
    # The loop runs five times, and once more where its rounds aren't known; the longer branch.
    assert [k.runs for k in found.kernels if k.name == "loop/Add_3"] == [5, 1]
    assert cycles.keys() == {product, "loop/Add_3", "long/Neg"}
    assert found.seconds * 1.5e9 == pytest.approx(6000 + 6 * 1500 + 3000)
    assert (found.unknown, found.endless) == (("odd/Neg", "odd/pallas_call"), 1)
    assert found.copied_bytes == 8 * 16 * 4
    (fusion,) = (k for k in found.kernels if k.name == product)
    assert fusion.flops == 2 * 8 * 16 * 32
    assert fusion.hbm_bytes == 16 * 32 * 4  # its result and the copied input are on the chip
    assert fusion.bound == "vector"
    assert fusion.compute_seconds == pytest.approx(8192 / 197e12)


def test_groups_add_up_to_the_step():
    found = profile(compiled(TEXT))
    operations = {s.name: s for s in found.by_operation()}
    assert operations.keys() == {"MatMul", "Add", "Neg"}
    assert operations["Add"].seconds * 1.5e9 == pytest.approx(9000)
    assert operations["Add"].share == pytest.approx(0.5)
    for groups in (found.by_operation(), found.by_layer(1), found.by_line({}.get)):
        assert sum(s.seconds for s in groups) == pytest.approx(found.seconds)
        assert [s.seconds for s in groups] == sorted((s.seconds for s in groups), reverse=True)
    assert {s.name for s in found.by_layer(1)} == {"net", "loop", "long"}
    named = ["layer net/dense", "layer loop", "layer long"]
    assert {s.name for s in found.by_line({}.get, 2)} == {*named}
    assert found.by_layer(5)[1].name == "net/dense/MatMul"


def test_what_is_added_up_across_replicas_is_told_with_whether_the_program_waits():
    found = profile(compiled(TOGETHER, target="v5e-8"))
    sizes = {8 * 128 * 4 + 8: True, 8 * 128 * 4: False, 3 * 8 * 128 * 4: True}
    expected = (Exchange("all-reduce", size, size * 2 * 7 / 8, w) for size, w in sizes.items())
    assert found.exchanges == tuple(expected)
    assert [k.name for k in found.kernels] == ["net/dense/Exp", "net/dense/Neg"]
    assert [s.name for s in found.by_layer()] == ["net/dense"]


@given(
    st.integers(1, 6), st.integers(1, 4), st.integers(1, 3), st.integers(1, 3), st.integers(1, 2),
    st.integers(0, 3), st.integers(0, 3),
)  # fmt: skip
def test_products_with_zeros_do_not_count(read, size, stride, spread, apart, low, high):
    spread_out = np.zeros((read - 1) * spread + 1)
    spread_out[::spread] = 1
    padded = np.concatenate([np.zeros(low), spread_out, np.zeros(high)])
    starts = range(0, len(padded) - (size - 1) * apart, stride)
    slow = sum(padded[m + k * apart] for m, k in itertools.product(starts, range(size)))
    window = f"size={size} stride={stride} pad={low}_{high} lhs_dilate={spread} rhs_dilate={apart}"
    attributes = f", window={{{window}}}, dim_labels=b0f_0io->b0f"
    left, right, result = [3, read, 5], [size, 5, 7], [3, len(starts), 7]
    if len(starts):
        assert multiplications(attributes, left, right, result) == slow * 3 * 5 * 7


def test_a_gradients_line_is_the_forward_operations_line():
    lines = {"net/dense/MatMul": "line 3", "tape": "line 9"}
    assert source("net/dense/MatMul", lines.get) == "line 3"
    assert source("gradient_tape/net/dense/MatMul/MatMul_1", lines.get) == "line 3"
    assert source("StatefulPartitionedCall/net/dense/MatMul_2", lines.get) == "line 3"
    assert source("elsewhere/Add", lines.get) is None


@pytest.mark.slow
@programs.LINUX
@pytest.mark.usefixtures("own_cache", "children")
@pytest.mark.parametrize("kind", ["range", "while", "LSTM"])
def test_twice_as_many_rounds_take_twice_as_long(kind):
    layer = tf.keras.layers.LSTM(64)
    layer(tf.zeros([8, 1, 64]))

    def rounds(n):
        def step(x):
            if kind == "LSTM":
                return layer(tf.broadcast_to(x[:8, None, :64], [8, n, 64]))
            if kind == "while":
                limit = tf.constant(3 * n)
                return tf.while_loop(lambda i, x: i < limit, lambda i, x: (i + 3, x @ x), (0, x))
            for _ in tf.range(n):
                x = tf.tanh(x @ x)
            return x

        return export(step, tf.TensorSpec([512, 512]))

    few_done, many_done = compile_all([rounds(20), rounds(40)], "v5e-1", effort="full")
    few, many = profile(few_done), profile(many_done)
    one = 2 * 512**3 if kind != "LSTM" else 2 * 8 * (64 + 64) * 256
    assert many.endless == few.endless == 0
    computed = [sum(k.flops for k in found.kernels) for found in (few, many)]
    assert computed[1] - computed[0] == pytest.approx(20 * one, rel=0.001)
    assert many_done.flops / few_done.flops == pytest.approx(2, rel=0.05)
    assert 1.5 < many.seconds / few.seconds < 2.1
