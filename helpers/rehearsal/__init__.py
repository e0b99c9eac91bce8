"""A TPU's surroundings without a TPU: a remote worker, several replicas, an embedded bucket.

Knows processes and protocols. ``exercises`` and ``course`` may import it; it imports ``tpu`` and
what is below.
"""
