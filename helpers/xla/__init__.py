"""What XLA makes of your code, shown: compared and counted.

Stands on ``tpu_preflight``. What is above it may import it; it imports ``display``, ``tpu`` and
``base``.
"""
