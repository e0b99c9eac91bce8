"""The bytes of a buffer, against NumPy's."""

import ml_dtypes  # noqa: F401 - names its types for NumPy
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tpu_preflight.chips.layout import BITS, shape_bytes

# NumPy's names of types, by XLA's; of others by their first letter.
NAMES = {"pred": "bool", "bf16": "bfloat16"}
PREFIXES = {"s": "int", "u": "uint", "f": "float", "c": "complex"}


def numpy_name(kind):
    if kind in NAMES:
        return NAMES[kind]
    return PREFIXES[kind[0]] + kind[1:]


@given(st.sampled_from(sorted(BITS)), st.lists(st.integers(0, 9), max_size=4))
def test_a_buffer_is_as_large_as_numpys(kind, sizes):
    dtype = numpy_name(kind)
    expected = np.zeros(sizes, dtype).nbytes
    if dtype.endswith("int4"):
        expected = (expected + 1) // 2  # NumPy doesn't pack these
    shape = f"{kind}[{','.join(map(str, sizes))}]"
    assert shape_bytes(shape) == expected


def test_a_bound_counts_in_full_and_a_layout_does_not():
    assert shape_bytes("s64[<=4,1]") == 32
    assert shape_bytes("f32[512,1000]{1,0:T(8,128)}") == 2_048_000
