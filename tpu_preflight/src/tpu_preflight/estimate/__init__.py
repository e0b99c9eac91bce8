"""What a step will take on a TPU: its time, by the estimate of Google's compiler."""
