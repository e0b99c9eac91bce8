"""Is this model ready for a TPU? One file for each check, and the report.

Knows what goes wrong on a TPU and how to see it here. ``exercises`` and ``course`` may import it;
it imports ``xla`` and what is below.
"""
