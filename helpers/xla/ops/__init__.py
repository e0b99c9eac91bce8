"""Which operations compile: for XLA on a CPU, and for Google's TPU compiler.

``cases.toml`` lists the operations, one line each. They are compiled from shapes and types alone,
never from values; the verdicts are kept in ``notebooks/data/ops.tsv`` and shown as one page.
Imports TensorFlow only to compile.
"""

from helpers.xla.ops.making import make, rows
from helpers.xla.ops.table import PAGE, Row, Table, page

read, write = Table.read, Table.write
