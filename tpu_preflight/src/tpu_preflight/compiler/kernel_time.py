"""How long a kernel of Pallas runs, for which XLA's cost model has no time.

At each point of its grid a kernel multiplies in the matrix units and computes in the vector unit,
and whichever takes longer hides most of the other. Both rates are fitted to libtpu's own schedules
of splash attention for v6e (0.0.51, read 2026-11 with ``--xla_jf_dump_llo_text``), in cycles of one
block:

=========================  ========  ================  ====================  ========
kernel, block, head        schedule  products at peak  vector work, 4 units  estimate
=========================  ========  ================  ====================  ========
forward, 1024², 256            3464              2048                  2294      3823
keys' gradient, 1024², 256     4611              4096                  2461      4551
queries' gradient, 1024²       3793              3072                  2155      3592
forward, 2048², 128           13734              4094                  7809     13015
=========================  ========  ================  ====================  ========

A schedule counts no waiting for memory, so a kernel's tensors once through it are a bound as well.
"""

import re

from tpu_preflight.chips.hardware import Chip
from tpu_preflight.program.pallas import FLOPS_KEY, POINTS_KEY, VECTOR_KEY, KernelWork

PRODUCTS_SHARE = 0.9  # of the peak rate
VECTOR_SHARE = 0.6  # of the vector unit's
# The vector unit has four ALUs for each of 8 x 128 lanes (libtpu's schedules show their capacity).
VECTOR_OPERATIONS = 4 * 8 * 128  # in a cycle of a core
# What a point of the grid takes besides: its indices, and the copies that are begun and awaited.
POINT_CYCLES = 250

_WORK = re.compile(rf'"({FLOPS_KEY}|{VECTOR_KEY}|{POINTS_KEY})":"(\d+)"')


def counted_work(attributes: str) -> KernelWork | None:
    """Read what `program.pallas` counted from a kernel's metadata; None where it didn't."""
    counts = dict(_WORK.findall(attributes))
    if len(counts) < 3:
        return None
    return KernelWork(
        flops=float(counts[FLOPS_KEY]),
        vector=float(counts[VECTOR_KEY]),
        points=int(counts[POINTS_KEY]),
    )


def kernel_seconds(work: KernelWork, hbm_bytes: float, chip: Chip) -> float:
    """Estimate one run of a kernel on one device of a chip.

    Args:
        work: What it computes.
        hbm_bytes: Of its arguments and results, those in the device's memory.
        chip: The kind of TPU.
    """
    peak = chip.bf16_tflops * 1e12 / chip.replicas
    bandwidth = chip.hbm_gb_per_s * 1e9 / chip.replicas
    cycles_per_second = chip.clock_ghz * 1e9
    cores = chip.cores / chip.replicas  # that work as one device
    product_seconds = work.flops / (PRODUCTS_SHARE * peak)
    vector_rate = VECTOR_SHARE * VECTOR_OPERATIONS * cycles_per_second * cores
    vector_seconds = work.vector / vector_rate
    point_seconds = work.points * POINT_CYCLES / cycles_per_second / cores
    busy_seconds = max(product_seconds, vector_seconds) + point_seconds
    return max(busy_seconds, hbm_bytes / bandwidth)
