"""Text of every length as training rows: sources, corpus, buckets, packing, records, masks.

Knows tokens and files, no model. ``bert`` and what is above it may import it; it imports
``display``, ``tpu`` and ``base``.
"""
