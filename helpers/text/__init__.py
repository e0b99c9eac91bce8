"""Text of every length as training rows: documents, corpus, buckets, packing, records, masks.

Knows tokens and files, no model. ``bert`` and what is above it may import it; it imports ``base``.
"""
