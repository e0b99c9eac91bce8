"""The layout of a shape against real error messages, a slow reference and the TPU compiler."""

import math
import re

import ml_dtypes  # noqa: F401 - names its types for NumPy
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tsv import table

from tpu_preflight.chips.layout import BITS, ITEM_BYTES, as_written, rearranged, shape_bytes
from tpu_preflight.errors import PreflightError

shapes = st.lists(st.integers(1, 400), max_size=4)
dtypes = st.sampled_from(sorted(ITEM_BYTES))


@pytest.mark.parametrize(("dtype", "shape", "expected"), table("sizes_on_v5e.tsv"))
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
    with pytest.raises(PreflightError, match=re.escape(f"{shape!r} is not the shape of a tensor")):
        layout(shape)
    with pytest.raises(PreflightError, match="'float64' is not known here"):
        layout([8, 128], "float64")


NUMPY = {"pred": "bool", "bf16": "bfloat16"}
KINDS = {"s": "int", "u": "uint", "f": "float", "c": "complex"}


@given(st.sampled_from(sorted(BITS)), st.lists(st.integers(0, 9), max_size=4))
def test_a_buffer_is_as_large_as_numpys(kind, sizes):
    dtype = NUMPY.get(kind) or KINDS[kind[0]] + kind[1:]
    size = np.zeros(sizes, dtype).nbytes
    expected = (size + 1) // 2 if dtype.endswith("int4") else size  # NumPy doesn't pack these
    assert shape_bytes(f"{kind}[{','.join(map(str, sizes))}]") == expected


@pytest.mark.parametrize(
    ("shape", "size"),
    [
        ("s64[<=4,1]", 32),  # a bound counts in full
        ("f32[512,1000]{1,0:T(8,128)}", 2_048_000),  # a layout doesn't count
        ("s4[3]", 2),
        ("u4[3,3]", 5),
        ("u4[]", 1),
        ("token[]", 0),
    ],
)
def test_bounds_layouts_and_half_bytes(shape, size):
    assert shape_bytes(shape) == size
