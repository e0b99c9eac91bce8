"""Which TPU this is, where it is rented, and how to reach it: places, facts, connections.

Knows clouds and buckets. The rooms above may import it; it imports only ``base``.
"""
