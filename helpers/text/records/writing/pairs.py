"""Pairs for next sentence prediction: half of the second halves are exchanged."""

import collections
import itertools
import zlib
from collections.abc import Iterable, Iterator

import numpy as np

from helpers.base.errors import CourseError
from helpers.text.records.encoder import Encoder
from helpers.text.records.format import Settings, shuffled

GROUP = 16  # minimum number of pairs that exchange their second halves


def make(
    documents: Iterable[tuple[int, bytes]], encode: Encoder, settings: Settings, name: str
) -> list[tuple[bytes, bytes, bool]]:
    """Make the pairs of one shard: first half, second half, and whether the second is random.

    Raises:
        CourseError: The shard has too few documents to take random second halves from.
    """
    longest = (settings.sequence_length - 3) // 2
    pairs = [
        (number, *halves)
        for number, ids in documents
        for halves in _halves(ids, encode, longest, settings.seed)
    ]
    return _exchange(pairs, name, settings.seed)


def _halves(
    ids: bytes, encode: Encoder, longest: int, seed: int
) -> Iterator[tuple[bytes, bytes, bytes]]:
    """Cut a document into pieces of nearly equal length, each of them in two at random.

    The second cut falls in the middle half of the piece, where a word begins unless a half would
    get longer than ``longest`` tokens; the seed and the piece itself decide where.

    Yields:
        A half, the other, and ``longest`` tokens that follow the first, or as many as there are.
        Nothing for a document of a single token.
    """
    numbers = np.frombuffer(ids, encode.type)
    size, count = encode.type.itemsize, -(-len(numbers) // (2 * longest))
    if len(numbers) < 2:
        return

    def word(edge: int, least: int) -> int:
        start = edge
        while start > least and encode.continues[numbers[start]]:
            start -= 1
        return edge if encode.continues[numbers[start]] else start

    begin = 0
    for piece in range(1, count + 1):
        end = piece * len(numbers) // count
        if piece < count:
            following = (piece + 1) * len(numbers) // count
            end = word(end, max(begin + 2, following - 2 * longest))
        quarter = max(1, (end - begin) // 4)
        least = max(begin + quarter, end - longest)
        most = min(end - quarter, begin + longest)
        drawn = zlib.crc32(ids[begin * size : end * size], seed) % (most - least + 1)
        middle = word(least + drawn, max(begin + 1, end - longest))
        after = ids[middle * size : (middle + longest) * size]
        yield ids[begin * size : middle * size], after[: (end - middle) * size], after
        begin = end


def _exchange(
    pairs: list[tuple[int, bytes, bytes, bytes]], name: str, seed: int
) -> list[tuple[bytes, bytes, bool]]:
    """Exchange the second halves of every other pair, so that they come from another document.

    The paper draws a random text for them and drops what stood there. An exchange drops nothing,
    and no half is seen twice. Halves of about the same length are exchanged: otherwise a model
    could tell a random one by the lengths alone. A half that happens to follow the very same first
    half somewhere in this shard is not a random one.
    """
    draw = shuffled(len(pairs), zlib.crc32(f"{name} {seed}".encode()))
    chosen = draw[: len(pairs) // 2]
    chosen = chosen[np.argsort([len(pairs[at][2]) for at in chosen], kind="stable")]
    documents = np.array([number for number, *_ in pairs])
    follow = collections.defaultdict(list)
    for _, first, _, after in pairs:
        follow[first].append(after)
    found = [(first, second, False) for _, first, second, _ in pairs]
    for start, end in itertools.pairwise(_groups(documents[chosen], name)):
        some = chosen[start:end]
        _, seen, of = np.unique(documents[some], return_index=True, return_inverse=True)
        some = some[np.argsort(seen[of], kind="stable")]  # each document's in one piece:
        others = np.roll(some, np.bincount(of).max())  # so far on there is another document
        for at, other in zip(some.tolist(), others.tolist(), strict=True):
            first, second = pairs[at][1], pairs[other][2]
            random_next = not any(text.startswith(second) for text in follow[first])
            found[at] = (first, second, random_next)
    return found


def _groups(documents: np.ndarray, name: str) -> list[int]:
    """Divide neighbours into groups in which no document has more than half of the pairs.

    Gives where groups begin, and where the last one ends.
    """

    def mixed(some: np.ndarray) -> bool:
        return len(some) > 0 and 2 * np.unique(some, return_counts=True)[1].max() <= len(some)

    edges = [0]
    for end in range(GROUP, len(documents) - GROUP + 1, GROUP):
        if mixed(documents[edges[-1] : end]):
            edges.append(end)
    while not mixed(documents[edges[-1] :]):
        if len(edges) == 1:
            raise CourseError(
                f"{name} would have too few documents to take random second halves from.",
                f"It would have {len(documents)} pairs that need one, and most of their text is of "
                "one document."
                if len(documents)
                else "It would have one pair.",
                "Ask for fewer shards, give more documents, or write the records without pairs.",
            )
        edges.pop()
    return [*edges, len(documents)]
