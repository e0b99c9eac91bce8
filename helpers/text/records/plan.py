"""Which shard a document goes to, and in which order: a function of its source's name and place."""

import dataclasses
import functools
import hashlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol, Self

from helpers.base.errors import CourseError
from helpers.text import corpus
from helpers.text.records.format import Settings, shard_names
from helpers.text.sources import Document

Read = Callable[[int], None]


class Source(Protocol):
    """Anything that gives its documents again and again; to be sent to other processes."""

    name: str

    def documents(self, done: Read = lambda size: None) -> Iterator[Document]:
        """Read the documents in order of their places; tell ``done`` of the bytes just read."""

    def report(self) -> dict[str, Any]:
        """Say what was found in them, when all are read, as JSON can hold it."""


@dataclasses.dataclass(frozen=True)
class Listed:
    """Documents that are in memory, as a source without a name."""

    texts: Iterable[str]
    name: str = ""

    def documents(self, done: Read = lambda size: None) -> Iterator[Document]:
        """Give the texts with their numbers."""
        for place, text in enumerate(self.texts):
            yield Document(text, self.name, place)

    def report(self) -> dict[str, Any]:
        """Nothing was looked for."""
        return {}


@dataclasses.dataclass(frozen=True)
class Target:
    """A folder of records to write."""

    path: str
    settings: Settings


@dataclasses.dataclass
class Sums:
    """What is known of each shard's documents when all have been read, in whatever order."""

    documents: list[int]  # their number, by shard
    digests: list[int]  # sum of their digests, modulo 2**64, by shard
    reports: list[tuple[str, dict[str, Any]]]  # of each source: its name, and what was found in it

    @classmethod
    def zero(cls, shards: int) -> Self:
        """Begin without documents."""
        return cls([0] * shards, [0] * shards, [])

    def add(self, shard: int, entry: bytes) -> None:
        """Count a document."""
        self.documents[shard] += 1
        self.digests[shard] = add(self.digests[shard], entry)

    def join(self, other: Self) -> None:
        """Count what another process has read."""
        self.documents = [sum(pair) for pair in zip(self.documents, other.documents, strict=True)]
        pairs = zip(self.digests, other.digests, strict=True)
        self.digests = [sum(pair) % 2**64 for pair in pairs]
        self.reports += other.reports


def add(total: int, entry: bytes) -> int:
    """Add an entry's digest to the sum of those of a shard; their order doesn't count."""
    one = hashlib.blake2b(entry[4:], digest_size=8).digest()
    return (total + int.from_bytes(one, "big")) % 2**64


@dataclasses.dataclass(frozen=True)
class Plan:
    """The shards to write, numbered over all folders; each process has the same plan."""

    targets: tuple[Target, ...]  # for the documents to train on; then, perhaps, for those held out
    tokenizer: str  # as JSON
    # What leaves a document out, for the manifest; counts of the same are added to it.
    rules: dict[str, Any] = dataclasses.field(default_factory=dict)

    @functools.cached_property
    def shards(self) -> list[tuple[Target, str]]:
        """Folder and name of each shard."""
        return [(t, name) for t in self.targets for name in shard_names(t.settings.shards)]

    def entry(self, document: Document) -> tuple[int, bytes]:
        """Give a document's shard, and its entry: sorted, entries are in the order of the shards.

        Raises:
            CourseError: The document is longer than any text.
        """
        if len(document.text) > corpus.LONGEST:
            raise CourseError(
                f"Document {document.place:,}{document.source and f' of {document.source}'} has "
                f"{len(document.text):,} characters.",
                f"No text has more than {corpus.LONGEST:,} in one piece: its line ends are "
                "probably missing, and it would have to be held in memory as a whole.",
                "Cut it into paragraphs or articles, one per line, and start again.",
            )
        out = len(self.targets) > 1 and corpus.held_out(document.place)
        settings, first = self.targets[out].settings, out * self.targets[0].settings.shards
        name = f"{settings.seed} {document.place} {document.source}"
        key = hashlib.blake2b(name.encode(), digest_size=16).digest()
        shard = first + int.from_bytes(key[:8], "big") % settings.shards
        # Half of a surrogate pair (JSON can hold one) is no character, and becomes a question mark.
        return shard, shard.to_bytes(4, "big") + key + document.text.encode("utf-8", "replace")


def text_of(entry: bytes) -> str:
    """Give an entry's document."""
    return entry[20:].decode()
