"""What every room stands on: errors, files, settings, and how text and pages are written.

Knows nothing of TPUs, TensorFlow or the course. Every room may import it; it imports none.
"""
