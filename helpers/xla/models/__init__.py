"""Which TensorFlow models of transformers compile: for XLA on a CPU, and for Google's TPU compiler.

Each class is built from a tiny configuration (``tiny.toml``) with random weights; its forward step
and its training step are compiled from shapes and types alone. The verdicts are kept in
``notebooks/data/models.tsv``. Imports TensorFlow only in a process of its own.
"""

from helpers.xla.models.making import classes, make, rows
from helpers.xla.models.table import Row, Table

read, write = Table.read, Table.write
