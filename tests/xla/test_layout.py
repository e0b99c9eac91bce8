"""The layout of a shape against a slow reference and the sizes that the TPU compiler gave."""

import math
import pathlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.base.errors import CourseError
from helpers.xla.layout import as_written, rearranged

shapes = st.lists(st.integers(1, 400), max_size=4)
LINES = pathlib.Path(__file__).with_name("sizes_on_v5e.tsv").read_text("utf-8").splitlines()
SIZES = [line.split("\t") for line in LINES if not line.startswith(("#", "shape"))]


@pytest.mark.parametrize(("shape", "expected"), SIZES)
def test_rearranged_takes_what_the_tpu_compiler_takes(shape, expected):
    assert rearranged([int(n) for n in shape.split(",") if n]).bytes == int(expected)


@given(shapes.filter(lambda shape: len(shape) >= 2))
def test_as_written_counts_whole_tiles(shape):
    """Against a slow reference: count the tiles of 8 by 128 that the last two dimensions touch."""
    *rest, rows, lanes = shape
    tiles = {(i // 8, j // 128) for i in range(rows) for j in range(lanes)}
    assert as_written(shape).bytes == math.prod(rest) * len(tiles) * 8 * 128 * 4


@given(shapes)
def test_rearranging_never_costs_more_and_never_loses_values(shape):
    written, best = as_written(shape), rearranged(shape)
    assert best.unpadded_bytes <= best.bytes <= written.bytes
    if len(shape) >= 2:
        assert sorted(best.order) == list(range(len(shape)))
        sizes = [shape[i] for i in best.order]
        assert all(p >= n for p, n in zip(best.padded, sizes, strict=True))


@pytest.mark.parametrize("layout", [as_written, rearranged])
@pytest.mark.parametrize("shape", [(0, 3), (-1, 8), (2.5, 8), (None, 128)])
def test_what_is_no_shape_is_refused(layout, shape):
    with pytest.raises(CourseError, match="is not the shape of a tensor"):
        layout(shape)
