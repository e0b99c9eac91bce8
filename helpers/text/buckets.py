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


def _as_lengths(lengths: npt.ArrayLike, longest: int | None = None) -> np.ndarray:
    """Make sequence lengths an int64 array; raise a `CourseError` if one is above ``longest``."""
    array = np.asarray(lengths)
    is_list_of_integers = array.ndim == 1 and array.size > 0 and array.dtype.kind in "iu"
    if not is_list_of_integers or array.min() < 1:
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
        return int(np.dot(self.edges, self.sequences))

    @property
    def efficiency(self) -> float:
        """Share of positions that hold a real token, 0 to 1."""
        return sum(self.tokens) / self.padded_tokens

    def __repr__(self) -> str:
        edges = ", ".join(map(str, self.edges))
        tokens = sum(self.tokens)
        noun = "bucket" if len(self.edges) == 1 else "buckets"
        return (
            f"{len(self.edges)} {noun} {edges}: {tokens:,} tokens in "
            f"{self.padded_tokens:,} positions, {self.efficiency:.1%} real"
        )


def optimal_edges(lengths: npt.ArrayLike, max_buckets: int, multiple: int = 8) -> Edges:
    """Find the edges with the least padding: exact, by dynamic programming.

    The last edge holds the longest sequence.

    Example:
        >>> optimal_edges([3, 5, 14, 16], max_buckets=2)
        2 buckets 8, 16: 38 tokens in 48 positions, 79.2% real

    Args:
        lengths: Tokens per sequence, whole numbers, 1-D.
        max_buckets: Number of edges. There are fewer where the lengths, rounded up, have fewer
            distinct values: a further bucket would stay empty.
        multiple: Every edge is a multiple of it. 8 suits the TPU's registers of 8 x 128.

    Raises `ValueError`: A number or a length is not positive, or there are no lengths.
    """
    if max_buckets < 1 or multiple < 1:
        raise ValueError("max_buckets and multiple must be at least 1")
    array = _as_lengths(lengths)
    # The best edges are lengths rounded up: rows of 512 in steps of 8 leave 64 to choose from.
    rounded_up = -(-array // multiple) * multiple
    edges, counts = np.unique(rounded_up, return_counts=True)
    sequences_below = np.append(0, np.cumsum(counts))  # sequences up to each edge
    # positions[j]: the fewest positions that hold the sequences below edge j; choices[j]: the edges
    # that do so. Without a bucket, only "no sequences" can be held.
    positions = np.append(0, np.full(len(edges), np.inf))
    choices: list[list[int]] = [[]] * (len(edges) + 1)
    for _ in range(min(max_buckets, len(edges))):
        # One bucket more: it takes the sequences from i on, for the best i < j; those below i are
        # held by the buckets so far.
        more_positions = np.full(len(edges) + 1, np.inf)
        more_choices: list[list[int]] = [[]]
        for j, edge in enumerate(edges, 1):
            candidates = positions[:j] + edge * (sequences_below[j] - sequences_below[:j])
            i = int(np.argmin(candidates))
            more_positions[j] = candidates[i]
            more_choices.append([*choices[i], int(edge)])
        positions = more_positions
        choices = more_choices
    best_edges = choices[-1]
    bucket = np.searchsorted(best_edges, array)
    return Edges(
        edges=tuple(best_edges),
        sequences=tuple(np.bincount(bucket).tolist()),
        tokens=tuple(map(int, np.bincount(bucket, weights=array))),
    )


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
        order = self.order.tolist()
        boundaries = itertools.pairwise(self.splits.tolist())
        return [order[start:end] for start, end in boundaries]

    @property
    def tokens(self) -> int:
        """Real tokens in all rows."""
        return int(self.lengths.sum())

    @property
    def efficiency(self) -> float:
        """Share of positions that hold a real token, 0 to 1."""
        return self.tokens / ((len(self.splits) - 1) * self.row_length)

    def __repr__(self) -> str:
        fullest = np.diff(self.splits).max()
        return (
            f"{len(self.lengths):,} sequences in {len(self.splits) - 1:,} rows of "
            f"{self.row_length}: {self.efficiency:.2%} real tokens, "
            f"up to {fullest} sequences in a row"
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
        starts = np.cumsum(self.lengths) - self.lengths
        lengths = self.lengths[self.order]
        # Where each token of the rows, one row after another, is among the values.
        sources = np.repeat(starts[self.order], lengths) + _count_within(lengths)
        return self._fill(values[sources], pad_value)

    def segment_ids(self) -> np.ndarray:
        """Number the sequences of each row 1, 2, ...; 0 is padding. int32 [rows, row_length]."""
        numbers = _count_within(np.diff(self.splits)) + 1
        number_of_each_token = np.repeat(numbers, self.lengths[self.order])
        return self._fill(number_of_each_token.astype(np.int32))

    def position_ids(self) -> np.ndarray:
        """Count each sequence's tokens from 0; 0 on padding. int32 [rows, row_length]."""
        positions = _count_within(self.lengths[self.order])
        return self._fill(positions.astype(np.int32))

    def _fill(self, tokens: np.ndarray, pad_value: int = 0) -> np.ndarray:
        """Write one value for each token, in the rows' order, to the beginnings of the rows."""
        tokens_in_row = np.add.reduceat(self.lengths[self.order], self.splits[:-1])
        rows = np.full((len(tokens_in_row), self.row_length), pad_value, tokens.dtype)
        holds_token = np.arange(self.row_length) < tokens_in_row[:, None]
        rows[holds_token] = tokens
        return rows


def _count_within(counts: np.ndarray) -> np.ndarray:
    """Count 0, 1, ... for each entry of ``counts``: [2, 3] gives [0, 1, 0, 1, 2]."""
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
    array = _as_lengths(lengths, row_length)
    row = _best_fit(array, row_length)
    # Rows are numbered by their longest sequences, so that sorting gives the promised order.
    _, sequences_in_row = np.unique(row, return_counts=True)
    return Packing(
        row_length=row_length,
        lengths=array,
        order=np.argsort(row, kind="stable"),
        splits=np.append(0, np.cumsum(sequences_in_row)),
    )


def _best_fit(lengths: np.ndarray, row_length: int) -> np.ndarray:
    """Put the longest first, each into the row that it fills best, and give each sequence's row.

    A row has the number of its longest sequence. int64 [sequences].
    """
    rows = np.empty(len(lengths), np.int64)
    rows_by_room: list[list[int]] = [[] for _ in range(row_length + 1)]
    # Bit r is set if some row has room for r more: finding the tightest fit is then arithmetic on
    # one number, not a search.
    rooms = 0
    for index in np.argsort(-lengths, kind="stable").tolist():
        length = int(lengths[index])
        large_enough = rooms >> length
        if large_enough:
            lowest_bit = (large_enough & -large_enough).bit_length() - 1
            room = length + lowest_bit
            row = rows_by_room[room].pop()
            if not rows_by_room[room]:
                rooms ^= 1 << room
        else:
            room = row_length
            row = index
        rows[index] = row
        remaining = room - length
        if remaining:
            rows_by_room[remaining].append(row)
            rooms |= 1 << remaining
    return rows
