"""What XLA makes of your code, for this CPU and, through Google's own compiler, for a TPU.

Knows programs and what they cost, without running them on a TPU. ``preflight`` and what is above
it may import it; it imports ``display``, ``tpu`` and ``base``.
"""
