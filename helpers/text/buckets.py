"""Text of every length in few shapes: bucket edges with the least padding, and packed rows.

XLA compiles once per shape, and a position that holds padding costs as much as one that holds a
token. Edges chosen by arithmetic balance the two; packing leaves one shape and almost no padding.
Lengths are counted in tokens, edges and rows in positions. Notebook 03 makes batches of both.
"""

import dataclasses
import itertools

import numpy as np
import numpy.typing as npt

from helpers.base.errors import CourseError


def _checked(lengths: npt.ArrayLike, longest: int | None = None) -> np.ndarray:
    """Make sequence lengths an int64 array; raise a `CourseError` if one is above ``longest``."""
    array = np.asarray(lengths)
    if array.ndim != 1 or not array.size or array.dtype.kind not in "iu" or array.min() < 1:
        raise ValueError("lengths must be whole numbers of at least 1, one for each sequence")
    if longest is not None and array.max() > longest:
        raise CourseError(
            f"{np.count_nonzero(array > longest):,} of {len(array):,} sequences are longer than "
            f"{longest} tokens; the longest has {array.max():,}.",
            "A sequence must fit whole: nothing is cut off unless you say so.",
            f"Make the row {array.max()} long, or let the tokenizer cut.",
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
            f"{len(self.edges)} buckets {', '.join(map(str, self.edges))}: "
            f"{sum(self.tokens):,} tokens in {self.padded_tokens:,} positions, "
            f"{self.efficiency:.1%} real"
        )


def optimal_edges(lengths: npt.ArrayLike, max_buckets: int, multiple: int = 8) -> Edges:
    """Find the edges with the least padding: exact, by dynamic programming.

    The last edge holds the longest sequence.

    Args:
        lengths: Tokens per sequence, whole numbers, 1-D.
        max_buckets: Number of edges. There are fewer where the lengths, rounded up, have fewer
            distinct values: a further bucket would stay empty.
        multiple: Every edge is a multiple of it. 8 suits the TPU's registers of 8 x 128.

    Raises `ValueError`: A number or a length is not positive, or there are no lengths.
    """
    if max_buckets < 1 or multiple < 1:
        raise ValueError("max_buckets and multiple must be at least 1")
    array = _checked(lengths)
    # The best edges are lengths rounded up: rows of 512 in steps of 8 leave 64 to choose from.
    edges, counts = np.unique(-(-array // multiple) * multiple, return_counts=True)
    below = np.append(0, np.cumsum(counts))  # sequences up to each edge
    # best[j], chosen[j]: the fewest positions for the sequences below[j], and the edges. With one
    # bucket more, the last one takes the sequences from below[i] on, for the best i < j.
    best, chosen = np.append(0, np.full(len(edges), np.inf)), [[]] * (len(edges) + 1)
    for _ in range(min(max_buckets, len(edges))):
        fewer, chosen_of_fewer = best, chosen
        best, chosen = np.full(len(edges) + 1, np.inf), [[]]
        for j, edge in enumerate(edges, 1):
            positions = fewer[:j] + edge * (below[j] - below[:j])
            i = int(np.argmin(positions))
            best[j] = positions[i]
            chosen.append([*chosen_of_fewer[i], int(edge)])
    bucket = np.searchsorted(chosen[-1], array)
    found = chosen[-1], np.bincount(bucket), np.bincount(bucket, weights=array)
    return Edges(*(tuple(map(int, row)) for row in found))


@dataclasses.dataclass(frozen=True, eq=False)
class Packing:
    """Which sequences share which row."""

    row_length: int  # positions per row
    lengths: np.ndarray  # tokens of each sequence as given, int64 [sequences]
    order: np.ndarray  # sequence indices, row after row, int64 [sequences]
    splits: np.ndarray  # row r holds ``order[splits[r]:splits[r + 1]]``, int64 [rows + 1]

    @property
    def rows(self) -> list[list[int]]:
        """Sequence indices of each row."""
        order, splits = self.order.tolist(), self.splits.tolist()
        return [order[a:b] for a, b in itertools.pairwise(splits)]

    @property
    def tokens(self) -> int:
        """Real tokens in all rows."""
        return int(self.lengths.sum())

    @property
    def efficiency(self) -> float:
        """Share of positions that hold a real token, 0 to 1."""
        return self.tokens / ((len(self.splits) - 1) * self.row_length)

    def __repr__(self) -> str:
        return (
            f"{len(self.lengths):,} sequences in {len(self.splits) - 1:,} rows of "
            f"{self.row_length}: {self.efficiency:.2%} real tokens, "
            f"up to {np.diff(self.splits).max()} sequences in a row"
        )

    def lay_out(self, values: npt.ArrayLike, pad_value: int = 0) -> np.ndarray:
        """Write one feature of all sequences into the rows: the same dtype, [rows, row_length].

        ``values`` are the sequences one after another in their own order, 1-D [sum of lengths],
        such as ``np.concatenate(token_ids)``; ``pad_value`` fills the free positions.

        Raises `ValueError`: There are not as many ``values`` as ``lengths`` say.
        """
        values = np.asarray(values)
        if values.shape != (self.lengths.sum(),):
            raise ValueError(
                f"{values.shape} values, but {self.lengths.sum():,} tokens were packed"
            )
        starts = (np.cumsum(self.lengths) - self.lengths)[self.order]
        lengths = self.lengths[self.order]
        return self._fill(values[np.repeat(starts, lengths) + _within(lengths)], pad_value)

    def segment_ids(self) -> np.ndarray:
        """Number the sequences of each row 1, 2, ...; 0 is padding. int32 [rows, row_length]."""
        numbers = _within(np.diff(self.splits)) + 1
        return self._fill(np.repeat(numbers, self.lengths[self.order]).astype(np.int32))

    def position_ids(self) -> np.ndarray:
        """Count each sequence's tokens from 0; 0 on padding. int32 [rows, row_length]."""
        return self._fill(_within(self.lengths[self.order]).astype(np.int32))

    def _fill(self, tokens: np.ndarray, pad_value: int = 0) -> np.ndarray:
        """Write what is known of all tokens, in order, to the beginnings of the rows."""
        filled = np.add.reduceat(self.lengths[self.order], self.splits[:-1])
        rows = np.full((len(filled), self.row_length), pad_value, tokens.dtype)
        rows[np.arange(self.row_length) < filled[:, None]] = tokens
        return rows


def _within(counts: np.ndarray) -> np.ndarray:
    """Count 0, 1, ... anew for each entry of ``counts``: [2, 3] gives [0, 1, 0, 1, 2]."""
    return np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)


def pack(lengths: npt.ArrayLike, row_length: int) -> Packing:
    """Put several sequences into each row so that almost no position stays empty.

    Best fit decreasing (Johnson and others, "Worst-case performance bounds for simple
    one-dimensional packing algorithms", 1974): on text it comes within a row or two of the fewest
    rows there can be. Rows come in the order in which their longest sequences arrived, so that rows
    of every kind are mixed.

    Args:
        lengths: Tokens per sequence, whole numbers, 1-D.
        row_length: Positions per row.

    Raises:
        CourseError: A sequence is longer than a row.
        ValueError: A number or a length is not positive, or there are no lengths.
    """
    if not 0 < row_length <= 2**24:
        raise ValueError(f"row_length is {row_length}: a row has 1 to 2^24 positions")
    given = _checked(lengths, row_length)
    row = _best_fit(given, row_length)
    sizes = np.unique(row, return_counts=True)[1]
    return Packing(
        row_length, given, np.argsort(row, kind="stable"), np.append(0, np.cumsum(sizes))
    )


def _best_fit(lengths: np.ndarray, row_length: int) -> np.ndarray:
    """Put the longest first, each into the row that it fills best, and give each sequence's row.

    A row is called by the number of its longest sequence. int64 [sequences].
    """
    rows = np.empty(len(lengths), np.int64)
    with_room: list[list[int]] = [[] for _ in range(row_length + 1)]
    rooms = 0  # bit r is set if some row has room for r more
    for at in np.argsort(-lengths, kind="stable").tolist():
        length = int(lengths[at])
        if fitting := rooms >> length:
            room = length + (fitting & -fitting).bit_length() - 1  # the lowest bit
            row = with_room[room].pop()
            rooms ^= (not with_room[room]) << room
        else:
            room, row = row_length, at
        rows[at] = row
        if left := room - length:
            with_room[left].append(row)
            rooms |= 1 << left
    return rows
