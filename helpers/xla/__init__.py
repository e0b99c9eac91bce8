"""What XLA makes of your code, shown: compared, counted, and drawn.

Stands on ``tpu_preflight``. What is above it may import it; it imports ``display``, ``tpu`` and
``base``.
"""
