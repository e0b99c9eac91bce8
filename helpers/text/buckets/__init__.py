"""Text of every length in few shapes: bucket edges, packed rows.

XLA compiles once per shape, and a position that holds padding costs as much as one that holds a
token. Edges chosen by arithmetic balance the two; packing leaves one shape and almost no padding.
Lengths are counted in tokens, edges and rows in positions. Notebook 03 makes batches of both.
"""

from helpers.text.buckets.edges import (
    Edges,
    TooLong,
    TooManyBuckets,
    measure_edges,
    optimal_edges,
)
from helpers.text.buckets.packing import Packing, pack
