"""The list of kernels against XLA's own account of what ran, and against programs read by hand."""

import pathlib

import pytest
import tensorflow as tf

from helpers.base.errors import CourseError
from helpers.xla.compilations import recording
from helpers.xla.fusion import Buffer, kernels

pytestmark = pytest.mark.slow


def softmax(x):
    return tf.exp(x) / tf.reduce_sum(tf.exp(x), -1, keepdims=True)


# Compiled by TensorFlow 2.20 for a CPU with one core, and with two (shortened to the main parts);
# and one with tuples and bitcasts.
PROGRAMS = pathlib.Path(__file__).with_name("hlo")
ONE_CORE, TWO_CORES, SEVERAL = (
    (PROGRAMS / name).read_text() for name in ("one_core.txt", "two_cores.txt", "several.txt")
)


def test_the_kernels_are_those_that_run():
    compiled = tf.function(softmax, jit_compile=True)
    x = tf.ones([1024, 1000])
    program = kernels(compiled.experimental_get_compiler_ir(x)(stage="optimized_hlo"))
    compiled(x)
    # A matrix product runs on another thread, which may report after its result is there and the
    # profiler has stopped; in many runs that is never all of them.
    with recording(r"end: (?!call)(.*)") as ran:
        for _ in range(10):
            compiled(x)
    assert len(set(ran)) == len(program.kernels)


def test_softmax_by_hand():
    program = kernels(ONE_CORE)
    e, sums = "f32[1024,1000]", "f32[1024]"
    assert program.kernels[0].reads == (Buffer("argument 0", e),)
    assert [k.operations for k in program.kernels] == [
        ("exponential",),
        ("reduce(add)",),
        ("broadcast", "divide"),
    ]
    assert program.fusions == program.kernels[2:]
    assert [k.writes for k in program.kernels[:2]] == [
        (Buffer("kernel 1", e),),
        (Buffer("kernel 2", sums),),
    ]
    full, small = 4 * 1024 * 1000, 4 * 1024
    assert program.bytes_written == 2 * full + small
    assert program.bytes_moved == 5 * full + 2 * small
    assert repr(program).endswith("3 kernels, 1 fusion among them; 20,488,192 bytes moved")
    assert program._repr_html_().count("<tr>") == 4


def test_the_list_is_the_same_on_one_core_and_on_two():
    assert kernels(ONE_CORE) == kernels(TWO_CORES)


def test_tuples_constants_and_bitcasts():
    program = kernels(SEVERAL)
    top, twice = program.kernels
    assert top.operations == ("TopK",) and not top.fused
    assert [b.name for b in top.writes] == ["kernel 1.0", "kernel 1.1"]
    # Once, though the second adds it to itself.
    assert top.reads == twice.reads == (Buffer("argument 1", "f32[4]"),)


def test_operations_in_the_background_are_told():
    copied = ONE_CORE.replace(" exponential(", " copy-start(")
    assert copied != ONE_CORE
    with pytest.raises(CourseError, match="runs in the background"):
        kernels(copied)
