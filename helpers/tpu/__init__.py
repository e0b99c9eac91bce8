"""Where this kernel runs and how it reaches a TPU, or a rehearsal: worker and bucket."""
