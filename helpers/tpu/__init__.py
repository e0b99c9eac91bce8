"""Which TPUs there are, which one this is, and how to reach it: facts, places, connections.

Knows kinds of TPU, clouds and buckets. The rooms above may import it; it imports only ``base``.
"""
