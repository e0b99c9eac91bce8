"""The course itself: its map, running and storing its notebooks, its pages, its commands.

Knows notebooks and files, no TensorFlow lesson. Only the command line and ``runtime`` may import
it; it imports every other room.
"""
