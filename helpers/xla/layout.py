"""How much memory a shape takes on a TPU, where its last two dimensions are rounded up.

Two answers are given for each shape: the dimensions kept in the order in which they are written,
and the order that takes the least memory, which is what today's compiler chooses when nothing
else forces its hand.
"""

import itertools
from collections.abc import Sequence

from helpers.base.errors import CourseError
from tpu_preflight.chips.layout import Layout

ROWS, LANES = 8, 128


def _up(n: int, multiple: int) -> int:
    return -(-n // multiple) * multiple


def _laid_out(shape: tuple[int, ...], order: Sequence[int], rows: int) -> Layout:
    """Round the last two dimensions of an order up to tiles of so many rows."""
    *rest, last = [shape[i] for i in order] or [1]
    if not rest:  # a vector's tile is the smallest of 128, 256, 512 and 1024 values that it fits in
        tile = next(n for n in (128, 256, 512, 1024) if n >= min(last, 1024))
        return Layout(shape, "float32", tuple(order), (_up(last, tile),))
    rest[-1] = _up(rest[-1], rows)
    return Layout(shape, "float32", tuple(order), (*rest, _up(last, LANES)))


def as_written(shape: Sequence[int]) -> Layout:
    """Pad the last two dimensions of float32 values to multiples of 8 and 128, as they are written.

    The rule that Google publishes (https://cloud.google.com/tpu/docs/performance-guide, read
    2026-11), and what a TPU did in 2019: tensorflow/tensorflow#30803 reports 64.0x for
    ``f32[256,512,128,2]``, DifferentiableUniverseInitiative/flowpm#27 32.0x for
    ``s32[8388608,8,4]``.

    Raises:
        CourseError: A dimension is not a whole number of 1 or more.
    """
    if any(not isinstance(n, int) or n < 1 for n in shape):
        raise CourseError(
            f"{tuple(shape)!r} is not the shape of a tensor.",
            "Each dimension is a whole number of 1 or more.",
            "Write the sizes, such as [32, 128, 768]; for an open dimension put its usual size.",
        )
    return _laid_out(tuple(shape), range(len(shape)), ROWS)


def rearranged(shape: Sequence[int]) -> Layout:
    """Choose the order of dimensions that takes the least memory, as the TPU compiler may.

    Any two dimensions may come last, and a tile may have 1, 2 or 4 rows instead of 8 where there
    are no more. For an argument of a program that leaves the choice free, this gives the size that
    the compiler of libtpu 0.0.51 gives for float32 on v4, v5e and v6e: equal for 150 random shapes
    (2026-11; compiled, not run). A convolution, a matrix product or a collective may force another
    order, and v2 and v3 have tiles of at least 1024 bytes. Arguments as for `as_written`.
    """
    candidates = [as_written(shape)]  # of equal ones the first
    for lanes, rows in itertools.permutations(reversed(range(len(shape))), 2):
        rest = [i for i in range(len(shape)) if i not in (rows, lanes)]
        tile_rows = next(n for n in (1, 2, 4, 8) if n >= min(shape[rows], ROWS))
        candidates.append(_laid_out(tuple(shape), (*rest, rows, lanes), tile_rows))
    return min(candidates, key=lambda layout: layout.bytes)
