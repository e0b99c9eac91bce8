"""Sizes of shapes as XLA writes them: ``f32[512,<=8]`` (https://openxla.org/xla/shapes)."""

import math

# Bits of one value, by type.
BITS = {
    "pred": 8,
    "bf16": 16,
    "c64": 64,
    "c128": 128,
    **{f"f{bits}": bits for bits in (16, 32, 64)},
    **{f"{kind}{bits}": bits for kind in "su" for bits in (4, 8, 16, 32, 64)},
}


def shape_bytes(shape: str) -> int:
    """Say how much memory a buffer takes, without padding.

    Args:
        shape: Type and shape as XLA writes them; a bounded dimension such as ``<=8`` counts in
            full, and what follows the bracket (a layout) doesn't count.

    Returns:
        Bytes; 0 for what holds no values (``token[]``).
    """
    kind, _, sizes = shape.partition("[")
    numbers = [int(n.removeprefix("<=")) for n in sizes.partition("]")[0].split(",") if n]
    return math.ceil(math.prod(numbers) * BITS.get(kind, 0) / 8)
