"""What a notebook shows: expected errors, figures with a text alternative, dials.

Knows how the course looks. The rooms above may import it; it imports ``tpu`` and ``base``.
"""
