"""How much memory a tensor takes on a TPU, where its last two dimensions are rounded up.

A TPU's vector registers hold 8 rows of 128 values of 32 bits, and tensors lie in memory as tiles
of that size (https://openxla.org/xla/tiled_layout, read 2026-11). What does not fill a tile is
padding: it takes memory and is read and written like the rest.

Two answers are given for each shape: the dimensions kept in the order in which they are written,
and the order that takes the least memory, which is what today's compiler chooses when nothing
else forces its hand. `shape_bytes` counts the values alone.
"""

import dataclasses
import itertools
import math
import re
from collections.abc import Sequence

from tpu_preflight.errors import PreflightError

ROWS, LANES = 8, 128

# Bytes of one value, for the types of which the compiler's choice was compared with ours.
ITEM_BYTES = {"float32": 4, "int32": 4, "bfloat16": 2, "int8": 1}

_SMALLEST_TILE_BYTES = 512

# Bits of one value, by the name that XLA gives to its type (https://openxla.org/xla/shapes).
BITS = {
    "pred": 8,
    "bf16": 16,
    "c64": 64,
    "c128": 128,
    **{f"f{bits}": bits for bits in (16, 32, 64)},
    **{f"{kind}{bits}": bits for kind in "su" for bits in (4, 8, 16, 32, 64)},
}


def shape_bytes(shape: str) -> int:
    """Compute how many bytes a buffer such as ``f32[512,<=8]`` takes, without padding.

    A bound counts in full; what follows the bracket (a layout) doesn't count, nor does what holds
    no values (``token[]``).
    """
    kind, _, sizes = shape.partition("[")
    numbers = map(int, re.findall(r"\d+", sizes.partition("]")[0]))
    return math.ceil(math.prod(numbers) * BITS.get(kind, 0) / 8)


@dataclasses.dataclass(frozen=True)
class Layout:
    """How a tensor lies in a TPU's memory."""

    shape: tuple[int, ...]  # the tensor's dimensions
    dtype: str  # type of its values, a key of ``ITEM_BYTES``
    order: tuple[int, ...]  # dimensions as they lie in memory, the fastest varying last
    padded: tuple[int, ...]  # sizes as they lie in memory, in the same order as ``order``

    @property
    def unpadded_bytes(self) -> int:
        """Bytes of the values themselves."""
        return math.prod(self.shape) * ITEM_BYTES[self.dtype]

    @property
    def bytes(self) -> int:
        """Bytes that the tensor takes in the TPU's memory."""
        return math.prod(self.padded) * ITEM_BYTES[self.dtype]

    @property
    def expansion(self) -> float:
        """Memory taken for each byte of values; 1 is the least, 64 means 63 bytes of padding."""
        return self.bytes / self.unpadded_bytes

    def __repr__(self) -> str:
        shape, padded = (" × ".join(map(str, n)) or "one value" for n in (self.shape, self.padded))
        moved = "" if self.order == tuple(range(len(self.shape))) else f" in the order {self.order}"
        return (
            f"{self.dtype} {shape}, in memory {padded}{moved}:\n"
            f"{self.unpadded_bytes:,} → {self.bytes:,} bytes ({self.expansion:.2f}x)"
        )


def _checked(shape: Sequence[int], dtype: str) -> tuple[int, ...]:
    if dtype not in ITEM_BYTES:
        raise PreflightError(
            f"The layout of {dtype!r} is not known here.",
            f"It was compared with the TPU compiler's for {', '.join(ITEM_BYTES)} only.",
            "Give one of these; a TPU computes in float32, bfloat16 and int32.",
        )
    if any(isinstance(n, bool) or not isinstance(n, int) or n < 1 for n in shape):
        raise PreflightError(
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
        PreflightError: A dimension is not a whole number of 1 or more, or ``dtype`` is not a key of
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
