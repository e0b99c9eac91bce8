"""Where this kernel runs and how it reaches a TPU, or a rehearsal of one: worker, bucket, replicas.

The rooms above may import it; it imports only ``base``.
"""
