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
ONE_CORE = (PROGRAMS / "one_core.txt").read_text()
TWO_CORES = (PROGRAMS / "two_cores.txt").read_text()
SEVERAL = (PROGRAMS / "several.txt").read_text()


def test_the_kernels_are_those_that_run():
    compiled = tf.function(softmax, jit_compile=True)
    x = tf.ones([1024, 1000])
    program = kernels(compiled.experimental_get_compiler_ir(x)(stage="optimized_hlo"))
    compiled(x)
    # A matrix product runs on another thread, which may report after its result is there and the
    # profiler has stopped; in many runs that is never all of them.
    with recording(r"end: (?!call)(.*)") as events:
        for _ in range(10):
            compiled(x)
    assert len(set(events)) == len(program.kernels)


def test_softmax_by_hand():
    program = kernels(ONE_CORE)
    exponential, reduction, division = program.kernels
    assert exponential.operations == ("exponential",)
    assert exponential.reads == (Buffer("argument 0", "f32[1024,1000]"),)
    assert exponential.writes == (Buffer("kernel 1", "f32[1024,1000]"),)
    assert reduction.operations == ("reduce(add)",)
    assert reduction.writes == (Buffer("kernel 2", "f32[1024]"),)
    assert division.operations == ("broadcast", "divide")
    assert program.fusions == (division,)
    full = 4 * 1024 * 1000
    small = 4 * 1024
    assert program.bytes_written == 2 * full + small
    assert program.bytes_moved == 5 * full + 2 * small
    assert repr(program).endswith("3 kernels, 1 fusion among them; 20,488,192 bytes moved")
    assert program._repr_html_().count("<tr>") == 4


def test_the_list_is_the_same_on_one_core_and_on_two():
    assert kernels(ONE_CORE) == kernels(TWO_CORES)


def test_tuples_constants_and_bitcasts():
    program = kernels(SEVERAL)
    top, twice = program.kernels
    assert top.operations == ("TopK",)
    assert not top.fused
    assert [b.name for b in top.writes] == ["kernel 1.0", "kernel 1.1"]
    # Once, though the second adds it to itself.
    assert top.reads == twice.reads == (Buffer("argument 1", "f32[4]"),)


def test_operations_in_the_background_are_told():
    copied = ONE_CORE.replace(" exponential(", " copy-start(")
    assert copied != ONE_CORE
    with pytest.raises(CourseError, match="runs in the background"):
        kernels(copied)
