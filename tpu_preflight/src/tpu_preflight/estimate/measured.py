"""A step's time by its kernels' estimates, and by what single kernels took when measured."""

import dataclasses

from tpu_preflight.chips import hardware
from tpu_preflight.compiler.profiling import Profile


def corrected(profile: Profile) -> Profile:
    """Correct the kernels' time by kernels that were measured on this generation.

    Where none was measured (`Chip.product_ratio` is 1), it stays the compiler's.
    """
    chip = hardware.slice_of(profile.target, jax=True).chip
    kernels = []
    for kernel in profile.kernels:
        ratio = chip.copy_ratio if kernel.bound == "HBM" else chip.product_ratio
        kernels.append(dataclasses.replace(kernel, seconds=kernel.seconds * ratio))
    return dataclasses.replace(profile, kernels=tuple(kernels))


def step_seconds(profile: Profile) -> float:
    """Add up the kernels, corrected, and what the program waits for.

    What devices send each other counts as far as no kernel hides it.

    Example:
        >>> seconds = step_seconds(compiler.profile(compiled))
    """
    return corrected(profile).seconds + profile.waiting_seconds
