"""The least time that a program could take on a TPU: what it must do, at the chip's peak rates."""

import dataclasses

from helpers.tpu import hardware
from helpers.xla.tpu_compiler.ask import Compiled

# Devices that the compiler sees in a chip.
_PARTS = {"v2": 2, "v3": 2, "v4": 2}


@dataclasses.dataclass(frozen=True)
class Roofline:
    """The least time that one run could take on one device: a bound, no prediction.

    Computing and memory are each taken at their peak and as if they overlapped fully
    (Williams, Waterman, Patterson 2009, doi:10.1145/1498765.1498785). What lies between the
    operations may stay on the chip, so it isn't counted. Real steps take longer: see the published
    run in notebook 08.

    Attributes:
        target: Such as ``v5e-8``.
        compute_seconds: Operations over the peak rate in bfloat16, the fastest type.
        hbm_seconds: What the program is given and gives back (variables, batch, results), read or
            written once, over the memory's bandwidth. A table of which it reads a few rows
            counts in full.
    """

    target: str
    compute_seconds: float
    hbm_seconds: float

    @property
    def seconds(self) -> float:
        """The larger of the two."""
        return max(self.compute_seconds, self.hbm_seconds)

    @property
    def limit(self) -> str:
        """What the bound comes from: ``compute`` or ``HBM``."""
        return "compute" if self.compute_seconds >= self.hbm_seconds else "HBM"

    def __repr__(self) -> str:
        return (
            f"{self.target}: at least {self.seconds * 1e3:.3g} ms a step, bound by {self.limit} "
            f"(compute {self.compute_seconds * 1e3:.3g} ms, HBM {self.hbm_seconds * 1e3:.3g} ms)"
        )


def roofline(compiled: Compiled) -> Roofline:
    """Bound the time of one run from below.

    Args:
        compiled: A program that compiles.

    Returns:
        The bound, for one device.
    """
    peak, bandwidth = per_device(hardware.slice_of(compiled.target).chip)
    moved = compiled.argument_bytes + compiled.output_bytes
    return Roofline(compiled.target, compiled.flops / peak, moved / bandwidth)


def per_device(chip: hardware.Chip) -> tuple[float, float]:
    """Give the peak rates of one device: bfloat16 operations and bytes of HBM, a second."""
    parts = _PARTS.get(chip.name, 1)
    return chip.bf16_tflops * 1e12 / parts, chip.hbm_gb_per_s * 1e9 / parts
