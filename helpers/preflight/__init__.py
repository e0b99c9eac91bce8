"""Is this model ready for a TPU? Its checks, the estimate of a step, and the report.

Knows what goes wrong on a TPU and how to see it here. ``exercises`` and ``course`` may import it;
it imports ``xla`` and what is below.
"""
