"""The bytes of a buffer, against NumPy's."""

import ml_dtypes  # noqa: F401 - names its types for NumPy
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tpu_preflight.chips.layout import BITS, shape_bytes

NUMPY = {"pred": "bool", "bf16": "bfloat16"}
KINDS = {"s": "int", "u": "uint", "f": "float", "c": "complex"}


@given(st.sampled_from(sorted(BITS)), st.lists(st.integers(0, 9), max_size=4))
def test_a_buffer_is_as_large_as_numpys(kind, sizes):
    dtype = NUMPY.get(kind) or KINDS[kind[0]] + kind[1:]
    size = np.zeros(sizes, dtype).nbytes
    expected = (size + 1) // 2 if dtype.endswith("int4") else size  # NumPy doesn't pack these
    assert shape_bytes(f"{kind}[{','.join(map(str, sizes))}]") == expected


def test_a_bound_counts_in_full_and_a_layout_does_not():
    assert shape_bytes("s64[<=4,1]") == 32
    assert shape_bytes("f32[512,1000]{1,0:T(8,128)}") == 2_048_000
