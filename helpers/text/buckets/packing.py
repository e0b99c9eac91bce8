"""Several sequences in each row, so that almost no position stays empty."""

import dataclasses
import itertools

import numpy as np
import numpy.typing as npt

from helpers.text.buckets.edges import as_lengths


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
        return int(np.minimum(self.lengths, self.row_length).sum())

    @property
    def efficiency(self) -> float:
        """Share of positions that hold a real token, 0 to 1."""
        return self.tokens / ((len(self.splits) - 1) * self.row_length)

    def __repr__(self) -> str:
        cut = int(np.count_nonzero(self.lengths > self.row_length))
        return (
            f"{len(self.lengths):,} sequences in {len(self.splits) - 1:,} rows of "
            f"{self.row_length}: {self.efficiency:.2%} real tokens, "
            f"up to {np.diff(self.splits).max()} sequences in a row"
            + f"; {cut:,} sequences truncated"
            * (cut > 0)
        )

    def _filled(self) -> tuple[np.ndarray, np.ndarray]:
        """Tell which positions are filled [rows, row_length], and the kept lengths in order."""
        kept = np.minimum(self.lengths, self.row_length)[self.order]
        fill = np.add.reduceat(kept, self.splits[:-1])
        return np.arange(self.row_length) < fill[:, None], kept

    def lay_out(self, values: npt.ArrayLike, pad_value: int = 0) -> np.ndarray:
        """Write one feature of all sequences into the rows: the same dtype, [rows, row_length].

        ``values`` are the sequences one after another in their own order, 1-D [sum of lengths],
        such as ``np.concatenate(token_ids)``; ``pad_value`` fills the free positions.

        Raises:
            ValueError: There are not as many ``values`` as ``lengths`` say.
        """
        values = np.asarray(values)
        if values.shape != (self.lengths.sum(),):
            raise ValueError(
                f"{values.shape} values, but {self.lengths.sum():,} tokens were packed"
            )
        filled, kept = self._filled()
        starts = (np.cumsum(self.lengths) - self.lengths)[self.order]
        rows = np.full(filled.shape, pad_value, values.dtype)
        rows[filled] = values[np.repeat(starts, kept) + _within(kept)]
        return rows

    def segment_ids(self) -> np.ndarray:
        """Number the sequences of each row 1, 2, ...; 0 is padding. int32 [rows, row_length]."""
        filled, kept = self._filled()
        ids = filled.astype(np.int32)
        ids[filled] = np.repeat(_within(np.diff(self.splits)) + 1, kept)
        return ids

    def position_ids(self) -> np.ndarray:
        """Count each sequence's tokens from 0; 0 on padding. int32 [rows, row_length]."""
        filled, kept = self._filled()
        ids = filled.astype(np.int32)
        ids[filled] = _within(kept)
        return ids


def _within(counts: np.ndarray) -> np.ndarray:
    """Count 0, 1, ... anew for each entry of ``counts``: [2, 3] gives [0, 1, 0, 1, 2]."""
    return np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)


def _best_fit(lengths: np.ndarray, row_length: int) -> np.ndarray:
    """Put the longest first, each into the row that it fills best, and give each sequence's row.

    A row is called by the number of its longest sequence. int64 [sequences].
    """
    rows = np.empty(len(lengths), np.int64)
    with_room: list[list[int]] = [[] for _ in range(row_length + 1)]
    rooms = 0  # bit r is set if some row has room for r more
    falling = np.argsort(-lengths, kind="stable")
    for at, length in zip(falling.tolist(), lengths[falling].tolist(), strict=True):
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


def pack(lengths: npt.ArrayLike, row_length: int, truncate: bool = False) -> Packing:
    """Put several sequences into each row so that almost no position stays empty.

    Best fit decreasing (Johnson and others, "Worst-case performance bounds for simple
    one-dimensional packing algorithms", 1974): on text it comes within a row or two of the fewest
    rows there can be. Rows come in the order in which their longest sequences arrived, so that rows
    of every kind are mixed.

    Args:
        lengths: Tokens per sequence, whole numbers, 1-D.
        row_length: Positions per row.
        truncate: Cut sequences longer than a row instead of refusing them.

    Raises:
        TooLong: A sequence is longer than a row, and ``truncate`` is off.
        ValueError: A number or a length is not positive, or there are no lengths.
    """
    if row_length < 1:
        raise ValueError(f"row_length is {row_length}: a row has at least one position")
    given = as_lengths(lengths, None if truncate else row_length)
    row = _best_fit(np.minimum(given, row_length), row_length)
    sizes = np.unique(row, return_counts=True)[1]
    return Packing(
        row_length, given, np.argsort(row, kind="stable"), np.append(0, np.cumsum(sizes))
    )
