"""What a reader with a TPU can confirm or refute: times, memory, and sentences of the course.

Notebook 13 measures and writes a report in JSON; ``tpu-course confirm`` checks and reads it.
"""
