"""A step's time by its kernels' estimates, and by what single kernels took when measured."""

from tpu_preflight.chips import hardware
from tpu_preflight.compiler.profiling import Profile


def step_seconds(profile: Profile) -> float:
    """Add up the kernels and what the program waits for, corrected by measured kernels.

    Where nobody measured one on this generation (`Chip.product_ratio` is 1), the kernels' time is
    the compiler's. What devices send each other counts as far as no kernel hides it.

    Example:
        >>> seconds = step_seconds(compiler.profile(compiled))
    """
    chip = hardware.slice_of(profile.target, jax=True).chip
    memory_seconds = 0.0
    for kernel in profile.kernels:
        if kernel.bound == "HBM":
            memory_seconds += kernel.seconds
    computing_seconds = profile.seconds - memory_seconds
    kernel_seconds = memory_seconds * chip.copy_ratio + computing_seconds * chip.product_ratio
    return kernel_seconds + profile.waiting_seconds
