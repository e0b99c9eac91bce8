"""BERT: the model, its training step, a run that can be resumed, and what it learned.

Knows one model. ``exercises`` and ``course`` may import it; it imports ``text`` and what is below.
"""
