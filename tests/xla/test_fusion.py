"""The list of kernels against XLA's own account of what ran, and against programs read by hand."""

import pathlib

import pytest
import tensorflow as tf

from helpers.xla.compare import hlo
from helpers.xla.compilations import recording
from helpers.xla.fusion import Buffer, draw, executed, kernels
from tpu_preflight import compiler
from tpu_preflight.errors import PreflightError

pytestmark = pytest.mark.slow

X = tf.TensorSpec([1024, 1000])


def softmax(x):
    return tf.exp(x) / tf.reduce_sum(tf.exp(x), -1, keepdims=True)


def layer_norm(x):
    mean, variance = tf.nn.moments(x, -1, keepdims=True)
    return (x - mean) * tf.math.rsqrt(variance + 1e-6)


# Compiled by TensorFlow 2.20 for a CPU with one core, and with two (shortened to the main parts);
# and one with tuples and bitcasts.
PROGRAMS = pathlib.Path(__file__).with_name("hlo")
ONE_CORE, TWO_CORES, SEVERAL = (
    (PROGRAMS / name).read_text() for name in ("one_core.txt", "two_cores.txt", "several.txt")
)


@pytest.mark.parametrize(
    ("fn", "specs"),
    [
        (softmax, [X]),
        (layer_norm, [X]),
    ],
)
def test_the_kernels_are_those_that_run(fn, specs):
    program = kernels(hlo(fn, *specs).optimized)
    compiled = tf.function(fn, jit_compile=True)
    tensors = [tf.ones(s.shape) for s in specs]
    compiled(*tensors)
    # A matrix product runs on another thread, which may report after its result is there and the
    # profiler has stopped; in many runs that is never all of them.
    with recording("Kernels", r"end: (?!call)(.*)") as ran:
        for _ in range(10):
            compiled(*tensors)
    assert len(set(ran)) == len(program.kernels)


def test_softmax_by_hand():
    program = kernels(ONE_CORE)
    x, e, sums = Buffer("argument 0", "f32[1024,1000]"), "f32[1024,1000]", "f32[1024]"
    assert program.arguments == (x,)
    assert [k.operations for k in program.kernels] == [
        ("exponential",),
        ("reduce(add)",),
        ("broadcast", "divide"),
    ]
    assert [k.number for k in program.fusions] == [3]
    assert program.temporaries == (Buffer("kernel 1", e), Buffer("kernel 2", sums))
    assert program.results == (Buffer("kernel 3", e),)
    full, small = 4 * 1024 * 1000, 4 * 1024
    assert program.bytes_written == 2 * full + small
    assert program.bytes_moved == 5 * full + 2 * small


def test_the_list_is_the_same_on_one_core_and_on_two():
    assert kernels(ONE_CORE) == kernels(TWO_CORES)


def test_a_program_of_the_tpu_compiler():
    exported = compiler.export(softmax, tf.TensorSpec([65536, 1000]))
    compiled = compiler.compile(exported, "v5e-1")
    if compiled.verdict == "not available":
        pytest.skip(compiled.message)
    program = kernels(compiled.hlo)
    assert [k.operations for k in program.kernels] == [
        ("exponential", "reduce(add)"),
        ("exponential", "broadcast", "divide"),
    ]
    assert program.bytes_moved == 3 * 4 * 65536 * 1000 + 2 * 4 * 65536


def test_tuples_constants_and_bitcasts():
    program = kernels(SEVERAL)
    assert [b.name for b in program.arguments] == ["argument 0", "argument 1"]
    top, twice = program.kernels
    assert top.operations == ("TopK",) and not top.fused
    assert [b.name for b in top.writes] == ["kernel 1.0", "kernel 1.1"]
    # Once, though the second adds it to itself.
    assert top.reads == twice.reads == (Buffer("argument 1", "f32[4]"),)
    names = [b.name for b in program.results]
    assert names == ["kernel 2", "argument 1", "kernel 1.0", "kernel 1.1"]
    assert program.temporaries == ()


@pytest.mark.parametrize(
    "text",
    [
        "module @jit_f { func.func public @main() }",
        ONE_CORE[: ONE_CORE.index("ENTRY")],
    ],
)
def test_what_is_no_program(text):
    with pytest.raises(PreflightError, match="can't be read as a program of XLA"):
        kernels(text)


def test_executed_eagerly_and_as_a_graph():
    x = tf.ones([64, 32])
    graph = tf.function(softmax)
    compiled = tf.function(softmax, jit_compile=True)
    graph(x), compiled(x)
    assert executed(softmax, x) == ("Exp", "Exp", "Sum", "RealDiv")
    assert executed(graph, x) == ("Exp", "Sum", "RealDiv")  # TensorFlow saw that both are equal
    assert executed(compiled, x) == ()


def test_the_picture_has_a_box_for_each_kernel_and_an_arrow_for_each_read():
    program = kernels(ONE_CORE)
    (ax,) = draw(program).axes
    assert len(ax.patches) == 1 + 3 + 1
    words = [t.get_text() for t in ax.texts]
    assert "fusion: broadcast · divide" in words and "exponential" in words
    assert words.count("4.10 MB") == 4  # argument → 1 → 2, 1 → 3 past 2, 3 → result
    assert words.count("4,096 bytes") == 1
    draw(kernels(SEVERAL))  # results that no kernel writes
    assert repr(program).endswith("3 kernels, 1 fusion among them; 20,488,192 bytes moved")
    assert program._repr_html_().count("<tr>") == 4
