"""The size of a shape, against the bytes that NumPy takes."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.tpu.shapes import BITS, shape_bytes

TYPES = {
    "pred": np.bool_,
    "bf16": ml_dtypes.bfloat16,
    "f16": np.float16,
    "f32": np.float32,
    "f64": np.float64,
    "s8": np.int8,
    "s16": np.int16,
    "s32": np.int32,
    "s64": np.int64,
    "u8": np.uint8,
    "u16": np.uint16,
    "u32": np.uint32,
    "u64": np.uint64,
    "c64": np.complex64,
    "c128": np.complex128,
}


@given(st.sampled_from(sorted(TYPES)), st.lists(st.integers(0, 9), max_size=4))
def test_a_buffer_is_as_large_as_numpys(kind, sizes):
    written = f"{kind}[{','.join(map(str, sizes))}]"
    assert shape_bytes(written) == np.zeros(sizes, TYPES[kind]).nbytes


@pytest.mark.parametrize(
    ("shape", "size"),
    [
        ("s64[<=4,1]", 32),  # a bound counts in full
        ("f32[512,1000]{1,0:T(8,128)}", 2_048_000),  # a layout doesn't count
        ("s4[3]", 2),
        ("token[]", 0),
    ],
)
def test_bounds_layouts_and_tokens(shape, size):
    assert shape_bytes(shape) == size


def test_only_types_of_four_bits_are_smaller_than_a_byte():
    assert {kind for kind, bits in BITS.items() if bits < 8} == {"s4", "u4"}
