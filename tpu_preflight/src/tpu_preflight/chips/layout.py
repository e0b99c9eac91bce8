"""How much memory a tensor takes on a TPU, where its last two dimensions are rounded up.

A TPU's vector registers hold 8 rows of 128 values of 32 bits, and tensors lie in memory as tiles
of that size (https://openxla.org/xla/tiled_layout, read 2026-11). What does not fill a tile is
padding: it takes memory and is read and written like the rest.

A `Layout` says how a tensor lies there; `shape_bytes` counts the values alone.
"""

import dataclasses
import math
import re

# Bytes of one value, for the types of which the compiler's choice was compared with ours.
ITEM_BYTES = {"float32": 4, "int32": 4, "bfloat16": 2, "int8": 1}

# Bits of one value, by the name that XLA gives to its type (https://openxla.org/xla/shapes).
BITS = {"pred": 8, "bf16": 16, "c64": 64, "c128": 128}
for bits in (16, 32, 64):
    BITS[f"f{bits}"] = bits
for bits in (4, 8, 16, 32, 64):
    BITS[f"s{bits}"] = bits
    BITS[f"u{bits}"] = bits


def shape_bytes(shape: str) -> int:
    """Compute how many bytes a buffer such as ``f32[512,<=8]`` takes, without padding.

    A bound counts in full; what follows the bracket (a layout) doesn't count, nor does what holds
    no values (``token[]``).

    Example:
        >>> shape_bytes("f32[512,<=8]")
        16384
    """
    kind, _, dimensions = shape.partition("[")
    dimensions, _, _ = dimensions.partition("]")
    values = math.prod(map(int, re.findall(r"\d+", dimensions)))
    return math.ceil(values * BITS.get(kind, 0) / 8)


def hbm_bytes(shape: str) -> int:
    """Count a tensor's bytes in HBM: none where its layout says that it lies on the chip."""
    if re.search(r"S\([1-9]\d*\)", shape):
        return 0
    return shape_bytes(shape)


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
        order = ""
        if self.order != tuple(range(len(self.shape))):
            order = f" in the order {self.order}"
        return (
            f"{self.dtype} {_product(self.shape)}, in memory {_product(self.padded)}{order}:\n"
            f"{self.unpadded_bytes:,} → {self.bytes:,} bytes ({self.expansion:.2f}x)"
        )


def _product(sizes: tuple[int, ...]) -> str:
    """Write the sizes of a tensor: ``8 × 128``."""
    return " × ".join(map(str, sizes)) or "one value"
