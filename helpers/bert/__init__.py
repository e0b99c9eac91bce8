"""BERT: the model, its training step, a run that can be resumed, and what it learned."""
