"""What a preflight checks: a `subject.Subject`, with one class for each library.

`load_subject` finds out which of them it is. `pipeline` reads a dataset, `execution` runs a step of
TensorFlow on this CPU, and `results` compares what two runs gave.
"""
