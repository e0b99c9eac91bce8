"""The compiler's own estimates: read from texts counted by hand, and from programs of libtpu."""

import collections
import gzip
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
    """Make what the compiler would give for a program with this text."""
    return Compiled(
        name="step",
        target=target,
        verdict="compiles",
        effort=effort,
        _text=gzip.compress(text.encode(), mtime=0),
    )


HLO = pathlib.Path(__file__).with_name("hlo")
TEXT = (HLO / "by_hand.txt").read_text()
REPLICATED = (HLO / "all_reduce.txt").read_text()


def test_a_text_counted_by_hand():
    step = profile(compiled(TEXT))
    kernels = collections.defaultdict(list)
    for kernel in step.kernels:
        kernels[kernel.name].append(kernel)
    product = "gradient_tape/net/dense/MatMul/MatMul_1"
    assert kernels.keys() == {product, "loop/Add_3", "long/Neg"}  # of two branches the longer one
    # The loop runs five times, and once more where its rounds aren't known.
    assert [kernel.runs for kernel in kernels["loop/Add_3"]] == [5, 1]
    assert step.seconds * 1.5e9 == pytest.approx(6000 + 6 * 1500 + 3000)
    assert (step.unknown, step.endless) == (("odd/Neg", "odd/pallas_call"), 1)
    assert step.copied_bytes == 8 * 16 * 4

    (fusion,) = kernels[product]
    assert fusion.flops == 2 * 8 * 16 * 32
    assert fusion.hbm_bytes == 16 * 32 * 4  # its result and the copied input are on the chip
    assert fusion.bound == "vector"
    assert fusion.compute_seconds == pytest.approx(8192 / 197e12)


def names(groups):
    return {share.name for share in groups}


def test_groups_add_up_to_the_step():
    step = profile(compiled(TEXT))
    operations = {share.name: share for share in step.by_operation()}
    assert operations.keys() == {"MatMul", "Add", "Neg"}
    assert operations["Add"].seconds * 1.5e9 == pytest.approx(9000)
    assert operations["Add"].share == pytest.approx(0.5)
    for groups in (step.by_operation(), step.by_layer(1), step.by_line({}.get)):
        seconds = [share.seconds for share in groups]
        assert sum(seconds) == pytest.approx(step.seconds)
        assert seconds == sorted(seconds, reverse=True)
    assert names(step.by_layer(1)) == {"net", "loop", "long"}
    lines = step.by_line({}.get, 2)
    assert names(lines) == {"layer net/dense", "layer loop", "layer long"}
    assert step.by_layer(5)[1].name == "net/dense/MatMul"


def test_what_is_added_up_across_replicas_is_told_with_whether_the_program_waits():
    step = profile(compiled(REPLICATED, target="v5e-8"))
    # Of each exchange its bytes, and whether the program waits.
    block = 8 * 128 * 4
    expected = [(block + 8, True), (block, False), (3 * block, True)]
    assert len(step.exchanges) == len(expected)
    for exchange, (size, waits) in zip(step.exchanges, expected, strict=True):
        assert exchange == Exchange("all-reduce", size, size * 2 * 7 / 8, waits)
    assert [kernel.name for kernel in step.kernels] == ["net/dense/Exp", "net/dense/Neg"]
    assert [share.name for share in step.by_layer()] == ["net/dense"]


@given(
    st.integers(1, 6), st.integers(1, 4), st.integers(1, 3), st.integers(1, 3), st.integers(1, 2),
    st.integers(0, 3), st.integers(0, 3),
)  # fmt: skip
def test_products_with_zeros_do_not_count(values, size, stride, spread, apart, low, high):
    # By hand in one dimension: a one for each value, zeros between them and around.
    dilated = np.zeros((values - 1) * spread + 1)
    dilated[::spread] = 1
    padded = np.concatenate([np.zeros(low), dilated, np.zeros(high)])
    starts = range(0, len(padded) - (size - 1) * apart, stride)
    expected = 0
    for start in starts:
        for weight in range(size):
            expected += padded[start + weight * apart]
    window = f"size={size} stride={stride} pad={low}_{high} lhs_dilate={spread} rhs_dilate={apart}"
    attributes = f", window={{{window}}}, dim_labels=b0f_0io->b0f"
    if len(starts):
        products = multiplications(attributes, [3, values, 5], [size, 5, 7], [3, len(starts), 7])
        assert products == expected * 3 * 5 * 7


def test_a_gradients_line_is_the_forward_operations_line():
    lines = {"net/dense/MatMul": "line 3", "tape": "line 9"}
    assert source("net/dense/MatMul", lines.get) == "line 3"
    assert source("gradient_tape/net/dense/MatMul/MatMul_1", lines.get) == "line 3"
    assert source("StatefulPartitionedCall/net/dense/MatMul_2", lines.get) == "line 3"
    assert source("elsewhere/Add", lines.get) is None


def total_flops(step):
    return sum(kernel.flops for kernel in step.kernels)


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

    compiled_20, compiled_40 = compile_all([rounds(20), rounds(40)], "v5e-1", effort="full")
    profile_20 = profile(compiled_20)
    profile_40 = profile(compiled_40)
    assert profile_40.endless == profile_20.endless == 0
    if kind == "LSTM":
        flops_of_a_round = 2 * 8 * (64 + 64) * 256
    else:
        flops_of_a_round = 2 * 512**3
    difference = total_flops(profile_40) - total_flops(profile_20)
    assert difference == pytest.approx(20 * flops_of_a_round, rel=0.001)
    assert compiled_40.flops / compiled_20.flops == pytest.approx(2, rel=0.05)
    assert 1.5 < profile_40.seconds / profile_20.seconds < 2.1
