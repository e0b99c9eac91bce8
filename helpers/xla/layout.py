"""How much memory a shape takes on a TPU, where its last two dimensions are rounded up.

Two answers are given for each shape: the dimensions kept in the order in which they are written,
and the order that takes the least memory, which is what today's compiler chooses when nothing
else forces its hand.
"""

import itertools
import math
from collections.abc import Sequence

from helpers.base.errors import CourseError
from tpu_preflight.chips.layout import ITEM_BYTES, Layout

ROWS, LANES = 8, 128

_SMALLEST_TILE_BYTES = 512


def _checked(shape: Sequence[int], dtype: str) -> tuple[int, ...]:
    if dtype not in ITEM_BYTES:
        raise CourseError(
            f"The layout of {dtype!r} is not known here.",
            f"It was compared with the TPU compiler's for {', '.join(ITEM_BYTES)} only.",
            "Give one of these; a TPU computes in float32, bfloat16 and int32.",
        )
    if any(isinstance(n, bool) or not isinstance(n, int) or n < 1 for n in shape):
        raise CourseError(
            f"{tuple(shape)!r} is not the shape of a tensor.",
            "Each dimension is a whole number of 1 or more.",
            "Write the sizes, such as [32, 128, 768]; for an open dimension put its usual size.",
        )
    return tuple(shape)


def _up(n: int, multiple: int) -> int:
    return -(-n // multiple) * multiple


def _laid_out(shape: tuple[int, ...], dtype: str, order: Sequence[int], rows: int) -> Layout:
    """Round the last two dimensions of an order up to tiles of so many rows."""
    sizes = [shape[i] for i in order]
    if len(sizes) >= 2:
        sizes[-2:] = _up(sizes[-2], rows), _up(sizes[-1], LANES)
        return Layout(shape, dtype, tuple(order), tuple(sizes))
    # A vector's tile is the smallest of 128, 256, 512 and 1024 values that it fits in.
    tile = max(LANES, _SMALLEST_TILE_BYTES // ITEM_BYTES[dtype])
    while tile < min(math.prod(sizes), ROWS * LANES):
        tile *= 2
    return Layout(shape, dtype, tuple(order), (_up(math.prod(sizes), tile),))


def as_written(shape: Sequence[int], dtype: str = "float32") -> Layout:
    """Pad the last two dimensions to multiples of 8 and 128, in the order they are written.

    The rule that Google publishes (https://cloud.google.com/tpu/docs/performance-guide, read
    2026-11), and what a TPU did in 2019: tensorflow/tensorflow#30803 reports 64.0x for
    ``f32[256,512,128,2]``, DifferentiableUniverseInitiative/flowpm#27 32.0x for
    ``s32[8388608,8,4]``.

    Raises:
        CourseError: A dimension is not a whole number of 1 or more, or ``dtype`` is not a key of
            ``ITEM_BYTES``.
    """
    shape = _checked(shape, dtype)
    return _laid_out(shape, dtype, range(len(shape)), ROWS)


def rearranged(shape: Sequence[int], dtype: str = "float32") -> Layout:
    """Choose the order of dimensions that takes the least memory, as the TPU compiler may.

    Any two dimensions may come last, and a tile may have 1, 2 or 4 rows instead of 8 where there
    are no more (but never less than 512 bytes). For an argument of a program that leaves the
    choice free, this gives the size that the compiler of libtpu 0.0.51 gives for v4, v5e and v6e:
    equal for 150 random shapes in each of the four types (2026-11; compiled, not run). A
    convolution, a matrix product or a collective may force another order, and v2 and v3 have
    tiles of at least 1024 bytes. Arguments as for `as_written`.
    """
    shape = _checked(shape, dtype)
    if len(shape) < 2:
        return as_written(shape, dtype)
    fewest_rows = _SMALLEST_TILE_BYTES // (LANES * ITEM_BYTES[dtype])
    candidates = []
    for last_two in itertools.permutations(reversed(range(len(shape))), 2):
        rows, lanes = last_two[::-1]
        rest = [i for i in range(len(shape)) if i not in last_two]
        tile_rows = next(n for n in (1, 2, 4, 8) if n >= min(max(shape[rows], fewest_rows), ROWS))
        candidates.append(_laid_out(shape, dtype, (*rest, rows, lanes), tile_rows))
    # Of equal ones the first is the order as written.
    return min(candidates, key=lambda layout: layout.bytes)
