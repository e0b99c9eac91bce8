"""One shard: documents become sequences, sequences packed rows, rows the bytes of a file."""

import collections
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence

import google_crc32c
import numpy as np

from helpers.base.errors import CourseError
from helpers.base.folders import Folder
from helpers.text import buckets
from helpers.text.records import plan
from helpers.text.records.encoder import Encoder
from helpers.text.records.format import Layout, Settings, Shard, description, to_json
from helpers.text.records.writing import pairs

# Documents that are tokenized together, and how many characters they have at most, but for one.
CHUNK = 1_000
CHUNK_CHARACTERS = 2_000_000

# Ids, in bytes, whose sequences are packed together: a bound for memory. A row more or less at the
# end of each is all that a larger window would save.
WINDOW = 2 * 2**20

Documents = list[tuple[int, bytes]]  # number in the shard, ids


def _chunks(entries: Iterable[bytes]) -> Iterator[list[bytes]]:
    chunk, size = [], 0
    for entry in entries:
        chunk.append(entry)
        size += len(entry)
        if len(chunk) == CHUNK or size > CHUNK_CHARACTERS:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _windows(documents: Iterable[tuple[int, bytes]]) -> Iterator[Documents]:
    """Divide documents into windows; the last one has at least ``WINDOW``, if there are so many."""
    window, size, first, before = [], 0, 0, 0
    for document in documents:
        window.append(document)
        size += len(document[1])
        if not first and size >= WINDOW:
            first, before = len(window), size
        elif first and size - before >= WINDOW:
            yield window[:first]
            window, size = window[first:], size - before
            first, before = len(window), size
    if window:
        yield window


@dataclasses.dataclass(frozen=True)
class ShardWriter:
    """Writes any shard of a folder of records."""

    settings: Settings
    encode: Encoder
    folder: Folder

    def __call__(
        self, entries: Iterable[bytes], name: str, done: Callable[[int], None] = lambda _: None
    ) -> None:
        """Write one shard of entries (`Plan.entry`, in order), then its description.

        A shard with a description is finished. ``done`` is called with the number of documents just
        finished.
        """
        counts = collections.Counter(dict.fromkeys(("sequences", "rows", "tokens", "bytes"), 0))

        def pieces() -> Iterator[bytes]:
            for at, window in enumerate(_windows(self._encoded(entries, counts, done))):
                packing, features = self._features(window, f"{name} {at}" if at else name)
                data = Layout.of(self.settings).records(features)
                counts["sequences"] += len(packing.lengths)
                counts["rows"] += len(packing.splits) - 1
                counts["tokens"] += packing.tokens
                counts["bytes"] += len(data)
                counts["crc"] = google_crc32c.extend(counts["crc"], data)
                yield data

        self.folder.write(name, pieces())
        shard = Shard(
            name=name,
            documents=counts["documents"],
            sequences=counts["sequences"],
            rows=counts["rows"],
            tokens=counts["tokens"],
            bytes=counts["bytes"],
            crc32c=f"{counts['crc']:08x}",
            text=f"{counts['text']:016x}",
        )
        self.folder.write(description(name), to_json(self.settings, shard=vars(shard)))

    def _encoded(
        self, entries: Iterable[bytes], counts: collections.Counter, done: Callable[[int], None]
    ) -> Iterator[tuple[int, bytes]]:
        """Give each document's number in the shard, and its ids."""
        for chunk in _chunks(entries):
            texts = list(map(plan.text_of, chunk))
            for text, entry, ids in zip(texts, chunk, self.encode(texts), strict=True):
                if not ids:
                    raise CourseError(
                        f"The document {text[:60]!r} has no token.",
                        "It is empty, or has white space and control characters only.",
                        "Leave such documents out; corpus.documents does.",
                    )
                counts["text"] = plan.add(counts["text"], entry)
                yield counts["documents"], ids
                counts["documents"] += 1
            done(len(chunk))

    def _features(
        self, documents: Documents, name: str
    ) -> tuple[buckets.Packing, dict[str, np.ndarray]]:
        if self.settings.pairs:
            found = pairs.make(documents, self.encode, self.settings, name)
            packing, features = self._rows([a + self.encode.sep + b for a, b, _ in found])
            return packing, features | self._pair_features(packing, found)
        return self._rows(list(self._pieces(documents)))

    def _pieces(self, documents: Documents) -> Iterator[bytes]:
        """Cut documents into pieces as Hugging Face's overflowing tokens are."""
        room = (self.settings.sequence_length - 2) * self.encode.type.itemsize
        for _, ids in documents:
            for start in range(0, len(ids), room):
                yield ids[start : start + room]

    def _rows(self, pieces: Sequence[bytes]) -> tuple[buckets.Packing, dict[str, np.ndarray]]:
        """Pack ``[CLS] piece [SEP]`` into rows."""
        encode = self.encode
        sequences = [encode.cls + piece + encode.sep for piece in pieces]
        lengths = np.fromiter(map(len, sequences), np.int64) // encode.type.itemsize
        packing = buckets.pack(lengths, self.settings.sequence_length)
        ids = np.frombuffer(b"".join(sequences), encode.type)
        return packing, {
            "input_ids": packing.lay_out(ids, encode.pad_id),
            "attention_mask": packing.segment_ids(),
            "position_ids": packing.position_ids(),
        }

    def _pair_features(
        self, packing: buckets.Packing, found: list[tuple[bytes, bytes, bool]]
    ) -> dict[str, np.ndarray]:
        lengths, size = packing.lengths, self.encode.type.itemsize
        seconds = np.fromiter((len(second) for _, second, _ in found), np.int64) // size + 1
        types = np.repeat(np.tile([0, 1], len(found)), np.ravel([lengths - seconds, seconds], "F"))
        random_next = np.zeros(lengths.sum(), np.uint8)
        random_next[np.cumsum(lengths) - lengths] = [random for *_, random in found]
        return {
            "token_type_ids": packing.lay_out(types),
            "random_next": packing.lay_out(random_next),
        }
