"""Documents in the order of their keys, more of them than memory holds: sorted runs, merged."""

import dataclasses
import heapq
import pathlib
import secrets
from collections.abc import Iterable, Iterator

import numpy as np

# Documents kept in memory before they are sorted and written; with what Python adds to each.
RUN_BYTES = 96 * 2**20
BESIDE = 64
BLOCK = 128 * 1024  # read at once from each run


@dataclasses.dataclass(frozen=True)
class Run:
    """Sorted entries in a file, or in memory.

    An entry is four bytes with the number of its shard, big-endian, then what it is sorted by.
    """

    path: pathlib.Path | None  # the file; None in memory
    # Where each shard's entries begin, and where the last one's end: bytes in the file, numbers in
    # memory, int64 [shards + 1].
    edges: np.ndarray
    entries: tuple[bytes, ...] = ()  # in memory: all of them

    def part(self, shard: int) -> "Part":
        """Give one shard's entries, without those of others: to be sent to another process."""
        start, end = self.edges[shard : shard + 2].tolist()
        return Part(self.path, start, end, () if self.path else self.entries[start:end])


@dataclasses.dataclass(frozen=True)
class Part:
    """The entries of one shard in one run."""

    path: pathlib.Path | None
    start: int
    end: int
    entries: tuple[bytes, ...]

    def __iter__(self) -> Iterator[bytes]:
        if self.path is None:
            yield from self.entries
            return
        at, rest = self.start, b""
        while at < self.end:
            with self.path.open("rb") as file:  # not kept open: there may be thousands of runs
                file.seek(at)
                read = file.read(min(BLOCK, self.end - at))
            at += len(read)
            data, start = rest + read, 0
            while (first := start + 4) <= len(data):
                end = first + int.from_bytes(data[start:first], "big")
                if end > len(data):
                    break
                yield data[first:end]
                start = end
            rest = data[start:]


class Sorter:
    """Takes entries in any order, and keeps at most ``RUN_BYTES`` of them in memory."""

    def __init__(self, folder: pathlib.Path, shards: int) -> None:
        self._folder, self._shards = folder, shards
        self._entries: list[bytes] = []
        self._size = 0
        self._runs: list[Run] = []

    def add(self, entry: bytes) -> None:
        """Take an entry."""
        self._entries.append(entry)
        self._size += len(entry) + BESIDE
        if self._size > RUN_BYTES:
            self._write()

    def runs(self, keep: bool) -> list[Run]:
        """Give all runs; ``keep`` the last one in memory, or it is written to disk, too."""
        if self._entries and not keep:
            self._write()
        elif self._entries:
            self._entries.sort()
            counts = np.bincount(list(map(_shard, self._entries)), minlength=self._shards)
            self._runs.append(Run(None, _edges(counts), tuple(self._entries)))
        return self._runs

    def _write(self) -> None:
        self._entries.sort()
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / secrets.token_hex(8)
        sizes = np.zeros(self._shards, np.int64)
        with path.open("wb") as file:
            for entry in self._entries:
                sizes[_shard(entry)] += 4 + len(entry)
                file.write(len(entry).to_bytes(4, "big"))
                file.write(entry)
        self._runs.append(Run(path, _edges(sizes)))
        self._entries, self._size = [], 0


def merged(parts: Iterable[Iterable[bytes]]) -> Iterator[bytes]:
    """Merge one shard's parts of all runs, in order."""
    return heapq.merge(*parts)


def _shard(entry: bytes) -> int:
    return int.from_bytes(entry[:4], "big")


def _edges(sizes: np.ndarray) -> np.ndarray:
    return np.append(0, np.cumsum(sizes))
