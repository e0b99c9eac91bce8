"""A step's time by its kernels' estimates, where the hardware was seen to do better than they say.

libtpu adds the time of a kernel's transfers to that of its computing: between two programs that
differ in where their tensors are (K1 and K2 of ``published.tsv``: on the chip, in its memory) its
estimate of the same kernel grows by nine tenths of the transfers' time. But a kernel reads its next
block while it computes on this one, so that the longer of the two hides the other.
"""

import dataclasses

from tpu_preflight.chips import hardware
from tpu_preflight.chips.hardware import Chip
from tpu_preflight.compiler.advice import Kernel
from tpu_preflight.compiler.profiling import Profile


def corrected(profile: Profile) -> Profile:
    """Let each kernel's transfers run beside its computing, where the generation's steps did.

    On others (`Chip.overlaps` is False: no published steps told) it stays the compiler's.
    """
    chip = hardware.slice_of(profile.target, jax=True).chip
    if not chip.overlaps:
        return profile
    kernels = []
    for kernel in profile.kernels:
        seconds = overlapped_seconds(kernel, chip)
        kernels.append(dataclasses.replace(kernel, seconds=seconds))
    return dataclasses.replace(profile, kernels=tuple(kernels))


def overlapped_seconds(kernel: Kernel, chip: Chip) -> float:
    """Take the longer of a kernel's computing and its transfers instead of their sum.

    Transfers run at the rate of a copy that was measured. Where they alone take longer than the
    whole estimate, the kernel reads only a part of a tensor, and its estimate stays, as does that
    of a Pallas kernel, which is no sum (`kernel_time`).
    """
    if kernel.kind == "custom-call":
        return kernel.seconds
    copy_rate = chip.copy_gb_per_s * 1e9 / chip.replicas
    transfer_seconds = kernel.hbm_bytes / copy_rate
    if transfer_seconds > kernel.seconds:
        return kernel.seconds
    computing_seconds = kernel.seconds - transfer_seconds
    return max(computing_seconds, transfer_seconds, kernel.compute_seconds)


def step_seconds(profile: Profile) -> float:
    """Add up the kernels, corrected, and what the program waits for.

    What devices send each other counts as far as no kernel hides it.

    Example:
        >>> seconds = step_seconds(compiler.profile(compiled))
    """
    return corrected(profile).seconds + profile.waiting_seconds
