"""The layout of a shape against real error messages, a slow reference and the TPU compiler."""

import math
import pathlib
import re

import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from helpers.base.errors import CourseError
from helpers.xla.layout import as_written, rearranged
from tpu_preflight import compiler
from tpu_preflight.chips.layout import ITEM_BYTES
from tpu_preflight.compiler import export

shapes = st.lists(st.integers(1, 400), max_size=4)
dtypes = st.sampled_from(sorted(ITEM_BYTES))
LINES = pathlib.Path(__file__).with_name("sizes_on_v5e.tsv").read_text("utf-8").splitlines()
SIZES = [line.split("\t") for line in LINES if not line.startswith(("#", "dtype"))]


@pytest.mark.parametrize(("dtype", "shape", "expected"), SIZES)
def test_rearranged_takes_what_the_tpu_compiler_takes(dtype, shape, expected):
    sizes = [int(n) for n in shape.split(",") if n]
    assert rearranged(sizes, dtype).bytes == int(expected)


def test_what_was_reported():
    reported = as_written([256, 512, 128, 2])  # tensorflow/tensorflow#30803
    assert (reported.unpadded_bytes, reported.expansion) == (128 * 2**20, 64.0)
    assert repr(reported) == (
        "float32 256 × 512 × 128 × 2, in memory 256 × 512 × 128 × 128:\n"
        "134,217,728 → 8,589,934,592 bytes (64.00x)"
    )
    assert as_written([8388608, 8, 4], "int32").expansion == 32.0  # flowpm#27
    today = rearranged([256, 512, 128, 2])  # the compiler writes {2,3,1,0:T(2,128)}
    assert today.expansion == 1.0
    assert "in memory 256 × 512 × 2 × 128 in the order (0, 1, 3, 2)" in repr(today)


@given(shapes, dtypes)
def test_as_written_counts_whole_tiles(shape, dtype):
    """Against a slow reference: count the tiles of 8 by 128 that the last two dimensions touch."""
    if len(shape) < 2:
        return
    *rest, rows, lanes = shape
    tiles = {(i // 8, j // 128) for i in {0, rows - 1} for j in {0, lanes - 1}}
    tiles = (max(i for i, _ in tiles) + 1) * (max(j for _, j in tiles) + 1)
    expected = math.prod(rest) * tiles * 8 * 128 * ITEM_BYTES[dtype]
    assert as_written(shape, dtype).bytes == expected


@given(shapes, dtypes)
def test_rearranging_never_costs_more_and_never_loses_values(shape, dtype):
    written, best = as_written(shape, dtype), rearranged(shape, dtype)
    assert best.unpadded_bytes <= best.bytes <= written.bytes
    if len(shape) >= 2:
        assert sorted(best.order) == list(range(len(shape)))
        sizes = [shape[i] for i in best.order]
        assert all(p >= n for p, n in zip(best.padded, sizes, strict=True))


@pytest.mark.parametrize("layout", [as_written, rearranged])
@pytest.mark.parametrize("shape", [(0, 3), (-1, 8), (2.5, 8), (None, 128), (True, 8)])
def test_what_is_no_shape_or_no_known_type_is_refused(layout, shape):
    with pytest.raises(CourseError, match=re.escape(f"{shape!r} is not the shape of a tensor")):
        layout(shape)
    with pytest.raises(CourseError, match="'float64' is not known here"):
        layout([8, 128], "float64")


@pytest.mark.slow
def test_the_compilers_own_layout_is_the_one_that_layout_predicts():
    shapes = (5, 3), (256, 2), (8, 128), (1000,), (3, 5, 7), (300, 200)
    programs = [export(lambda x: x + 1.0, tf.TensorSpec(shape)) for shape in shapes]
    with compiler.started():
        answers = [compiler.compile(program) for program in programs]
    for shape, compiled in zip(shapes, answers, strict=True):
        expected = rearranged(shape)
        found = {p.layout.bytes for p in compiler.padding(compiled)}
        assert found == ({expected.bytes} if expected.bytes > expected.unpadded_bytes else set())
