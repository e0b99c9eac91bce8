"""Bucket edges with the least padding."""

import dataclasses
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from helpers.base.errors import CourseError


class TooLong(CourseError):
    """A sequence does not fit into the longest bucket or the row."""


class TooManyBuckets(CourseError):
    """More buckets are asked for than the lengths can fill."""


def as_lengths(lengths: npt.ArrayLike, longest: int | None = None) -> np.ndarray:
    """Check sequence lengths and make them an int64 array; none may be above ``longest``.

    Raises:
        TooLong: One is.
        ValueError: They are not whole numbers of at least 1, in one dimension, or there are none.
    """
    array = np.asarray(lengths)
    if array.ndim != 1 or not array.size or array.dtype.kind not in "iu" or array.min() < 1:
        raise ValueError("lengths must be whole numbers of at least 1, one for each sequence")
    if longest is not None and array.max() > longest:
        raise TooLong(
            f"{np.count_nonzero(array > longest):,} of {len(array):,} sequences are longer than "
            f"{longest} tokens; the longest has {array.max():,}.",
            "A sequence must fit whole: nothing is cut off unless you say so.",
            f"Make the row or the last bucket {array.max()} long; pack() cuts with truncate=True.",
        )
    return array.astype(np.int64)


@dataclasses.dataclass(frozen=True)
class Edges:
    """Bucket edges and what they cost on the lengths they were measured with."""

    # Padded length of each bucket, rising. A sequence goes to the first that holds it.
    edges: tuple[int, ...]
    sequences: tuple[int, ...]  # how many sequences go to each bucket
    tokens: tuple[int, ...]  # how many real tokens they have

    @property
    def padded_tokens(self) -> int:
        """Positions that all sequences take, padding included."""
        return sum(e * n for e, n in zip(self.edges, self.sequences, strict=True))

    @property
    def efficiency(self) -> float:
        """Share of positions that hold a real token, 0 to 1."""
        return sum(self.tokens) / self.padded_tokens

    def __repr__(self) -> str:
        return (
            f"{len(self.edges)} bucket{'s' * (len(self.edges) > 1)} "
            f"{', '.join(map(str, self.edges))}: "
            f"{sum(self.tokens):,} tokens in {self.padded_tokens:,} positions, "
            f"{self.efficiency:.1%} real"
        )


def measure_edges(lengths: npt.ArrayLike, edges: Sequence[int]) -> Edges:
    """Measure edges of your own (padded lengths, rising), to compare them with `optimal_edges`.

    ``lengths`` are tokens per sequence, whole numbers, 1-D. An edge that no sequence needs stays,
    with a count of 0.

    Raises:
        TooLong: A sequence is longer than the last edge.
        ValueError: Lengths are not positive whole numbers, or edges don't rise.
    """
    if not len(edges) or edges[0] < 1 or np.any(np.diff(edges) <= 0):
        raise ValueError("edges must rise: each bucket holds what is longer than the edge before")
    array = as_lengths(lengths, edges[-1])
    bucket = np.searchsorted(edges, array)
    sequences = np.bincount(bucket, minlength=len(edges))
    tokens = np.bincount(bucket, weights=array, minlength=len(edges)).astype(np.int64)
    return Edges(*(tuple(map(int, row)) for row in (edges, sequences, tokens)))


def optimal_edges(lengths: npt.ArrayLike, max_buckets: int, multiple: int = 8) -> Edges:
    """Find the edges with the least padding: exact, by dynamic programming.

    The last edge holds the longest sequence.

    Args:
        lengths: Tokens per sequence, whole numbers, 1-D.
        max_buckets: Number of edges; fewer never pad less.
        multiple: Every edge is a multiple of it. 8 suits the TPU's registers of 8 x 128.

    Raises:
        TooManyBuckets: There are fewer distinct rounded lengths than ``max_buckets``.
        ValueError: A number or a length is not positive, or there are no lengths.
    """
    if max_buckets < 1 or multiple < 1:
        raise ValueError("max_buckets and multiple must be at least 1")
    array = as_lengths(lengths)
    # The best edges are lengths rounded up: rows of 512 in steps of 8 leave 64 to choose from.
    edges, counts = np.unique(-(-array // multiple) * multiple, return_counts=True)
    if max_buckets > len(edges):
        raise TooManyBuckets(
            f"{max_buckets} buckets, but lengths rounded up to a multiple of {multiple} have "
            f"{len(edges)} distinct values.",
            "Each further bucket would stay empty.",
            f"Ask for at most {len(edges)}, or choose a smaller multiple.",
        )
    below = np.append(0, np.cumsum(counts))  # sequences up to each edge
    # best[j], chosen[j]: the fewest positions for the sequences below[j], and the edges. With one
    # bucket more, the last one takes the sequences from below[i] on, for the best i < j.
    best, chosen = np.append(0, np.full(len(edges), np.inf)), [[]] * (len(edges) + 1)
    for _ in range(max_buckets):
        fewer, chosen_of_fewer = best, chosen
        best, chosen = [np.inf], [[]]
        for j, edge in enumerate(edges, 1):
            positions = fewer[:j] + edge * (below[j] - below[:j])
            i = int(np.argmin(positions))
            best.append(positions[i])
            chosen.append([*chosen_of_fewer[i], int(edge)])
        best = np.array(best)
    return measure_edges(array, chosen[-1])
