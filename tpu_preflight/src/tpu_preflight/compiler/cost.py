"""The least time that a program could take on a TPU: what it must do, at the chip's peak rates."""

import dataclasses

from tpu_preflight.chips import hardware
from tpu_preflight.compiler.client import Compiled


@dataclasses.dataclass(frozen=True)
class Roofline:
    """The least time that one run could take on one device: a bound, no prediction.

    Computing and memory are each taken at their peak and as if they overlapped fully
    (Williams, Waterman, Patterson 2009, doi:10.1145/1498765.1498785). What lies between the
    operations may stay on the chip, so it isn't counted. Real steps take longer: see
    `estimate.calibration`.

    Attributes:
        compute_seconds: Operations over the peak rate in bfloat16, the fastest type.
        hbm_seconds: What the program is given and gives back (variables, batch, results), read or
            written once, over the memory's bandwidth. A table of which it reads a few rows
            counts in full.
        link_seconds: What a chip sends to others, over all its links; 0 for one device.
    """

    compute_seconds: float
    hbm_seconds: float
    link_seconds: float = 0.0

    @property
    def seconds(self) -> float:
        """The largest of the three."""
        return max(self.compute_seconds, self.hbm_seconds, self.link_seconds)


def roofline(compiled: Compiled) -> Roofline:
    """Bound the time of one run of a program that compiles from below, for one device."""
    slice_ = hardware.slice_of(compiled.target, jax=True)
    peak, bandwidth = per_device(slice_.chip)
    moved_bytes = compiled.argument_bytes + compiled.output_bytes
    link, _ = link_seconds(slice_, compiled.sent_bytes)
    return Roofline(
        compute_seconds=compiled.flops / peak,
        hbm_seconds=moved_bytes / bandwidth,
        link_seconds=link,
    )


def link_seconds(slice_: hardware.Slice, sent: float) -> tuple[float, float]:
    """Bound the time in which each chip of a slice sends so many bytes.

    Nothing is taken off for the time that a message needs. Gives seconds where all links of a chip
    are busy, as in a torus, and where only two are: the chips as one ring, both ways round. A slice
    of few chips is no torus.
    """
    # The table counts both directions together; a ring has two links of each chip.
    all_links_rate = slice_.chip.ici_gb_per_s * 1e9 / 2
    ring_rate = all_links_rate * 2 / slice_.chip.ici_links
    return sent / all_links_rate, sent / ring_rate


def per_device(chip: hardware.Chip) -> tuple[float, float]:
    """Give the peak rates of one device: bfloat16 operations and bytes of HBM, a second."""
    peak = chip.bf16_tflops * 1e12 / chip.replicas
    bandwidth = chip.hbm_gb_per_s * 1e9 / chip.replicas
    return peak, bandwidth
