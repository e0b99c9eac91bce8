"""A step's time from its optimized program alone, without the code that libtpu makes of it.

The compiler's cycles are in its text only after it has made code of every kernel, which takes hours
for some of these steps on a busy machine of two cores. What it optimized, fused, scheduled and put
into memory is there after minutes: libtpu writes it as ``*.after_optimizations.txt`` into the
folder of ``xla_dump_to``. Each kernel then takes the longer of its products and its bytes at rates
that somebody measured, and the schedule says what it waits for. It is a bound: of R3, which was
compiled whole, the compiled kernels, corrected by measured ones, took 1.104 times as long,
of K1 with its small products and large vocabulary 1.59 times.
"""

import re
from collections.abc import Sequence

from tpu_preflight.chips import hardware
from tpu_preflight.chips.layout import hbm_bytes, shape_bytes
from tpu_preflight.compiler.execution import Step, flops, walk
from tpu_preflight.compiler.kernel_time import counted_work, kernel_seconds
from tpu_preflight.compiler.waiting import Schedule
from tpu_preflight.program.instructions import computations

# Of the peak rate; a product of 8192 x 8192 takes 0.90 of it (`chips.toml`), smaller ones less.
PRODUCTS_SHARE = 0.85
# Of a Pallas kernel's estimate: what a product of 8192 x 8192 took of the compiler's. The
# predictions were made with it.
PALLAS_SHARE = 0.905

_KERNELS = (
    "broadcast",
    "concatenate",
    "convert",
    "convolution",
    "copy",
    "custom-call",
    "dot",
    "dynamic-slice",
    "dynamic-update-slice",
    "fusion",
    "reduce",
    "slice",
    "transpose",
)
_LARGE = 2**20  # bytes; a smaller tensor isn't worth a look at its first dimension


def step_seconds(text: str, target: str, layers: int = 0) -> tuple[float, float]:
    """Bound a step's kernels, and compute what it waits for besides.

    Args:
        text: The optimized program.
        target: What it was compiled for.
        layers: Rounds of its longest loop; a tensor with so many parts is read in parts there.

    Returns:
        Seconds of all kernels, and seconds in which none runs.
    """
    slice_ = hardware.slice_of(target, jax=True)
    chip = slice_.chip
    module, main = computations(text)
    run_seconds = {}
    total = 0.0
    for step in walk(module, main):
        instruction = step.instruction
        is_kernel = instruction.opcode in _KERNELS
        if instruction.opcode == "custom-call":
            is_kernel = '"tpu_custom_call"' in instruction.attributes
        if not is_kernel:
            continue
        moved = _moved_bytes(step, layers)
        work = counted_work(instruction.attributes)
        if work is None:
            products = flops(instruction, module, step.shapes)
            product_seconds = products / (PRODUCTS_SHARE * chip.bf16_tflops * 1e12)
            seconds = max(product_seconds, moved / (chip.copy_gb_per_s * 1e9))
        else:
            seconds = kernel_seconds(work, moved, chip) * PALLAS_SHARE
        run_seconds[instruction.name] = seconds
        total += step.times * seconds
    passage = Schedule(module, run_seconds, slice_).run(main)
    return total, passage.waiting


def _moved_bytes(step: Step, layers: int) -> float:
    """Count a kernel's bytes in HBM, of stacked layers those of one."""
    total = 0.0
    for tensor in step.tensors:
        size = hbm_bytes(tensor)
        first = _first_dimension(tensor)
        if layers and first == layers and step.times >= layers - 1 and size > _LARGE:
            size /= layers
        total += size
    return total


def _first_dimension(tensor: str) -> int:
    sizes: Sequence[str] = re.findall(r"\d+", tensor.partition("[")[2].partition("]")[0])
    return int(sizes[0]) if sizes and shape_bytes(tensor) else 0
