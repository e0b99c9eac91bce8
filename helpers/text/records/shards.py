"""One shard: documents become sequences, sequences packed rows, rows the bytes of a file."""

import collections
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import google_crc32c
import numpy as np

from helpers.base.errors import CourseError
from helpers.base.folders import Folder
from helpers.text import buckets, corpus
from helpers.text.records import pairs
from helpers.text.records.encoder import Encoder
from helpers.text.records.format import Layout, Settings, Shard, description, to_json

CHUNK = 1_000  # documents that are tokenized together

Texts = Iterator[tuple[list[int], list[str]]]


def chunks(documents: Sequence[str] | Mapping[int, str], numbers: list[int]) -> Texts:
    """Give ``CHUNK`` documents at a time, with their numbers."""
    for start in range(0, len(numbers), CHUNK):
        chunk = numbers[start : start + CHUNK]
        yield chunk, [documents[number] for number in chunk]


def text_crc32c(texts: Iterable[str], crc: int = 0) -> int:
    """Give the checksum of documents, continued from that of those before."""
    return google_crc32c.extend(crc, "".join(f"{len(text)}:{text}" for text in texts).encode())


def _encoded(
    texts: Sequence[str], numbers: Sequence[int], encode: Encoder
) -> Iterator[tuple[int, bytes]]:
    """Give each document's number and ids."""
    for number, text in zip(numbers, texts, strict=True):
        if len(text) > corpus.LONGEST:
            raise CourseError(
                f"Document {number} has {len(text):,} characters.",
                f"No text has more than {corpus.LONGEST:,} in one piece: its line ends are "
                "probably missing, and it would have to be held in memory as a whole.",
                "Cut it into paragraphs or articles, one per line, and start again.",
            )
    for number, ids in zip(numbers, encode(texts), strict=True):
        if not ids:
            raise CourseError(
                f"Document {number} has no token.",
                "It is empty, or has white space and control characters only.",
                "Leave such documents out; corpus.documents does.",
            )
        yield number, ids


@dataclasses.dataclass(frozen=True)
class ShardWriter:
    """Writes any shard of a folder of records."""

    settings: Settings
    encode: Encoder
    folder: Folder

    def __call__(self, chunks: Texts, name: str, done: Callable[[int], None]) -> None:
        """Write one shard, then its description: a shard with a description is finished."""
        counts = collections.Counter()

        def counted() -> Iterator[tuple[int, bytes]]:
            for numbers, texts in chunks:
                yield from _encoded(texts, numbers, self.encode)
                counts["crc"] = text_crc32c(texts, counts["crc"])
                counts["documents"] += len(texts)
                done(len(texts))

        if self.settings.pairs:
            found = pairs.make(counted(), self.encode, self.settings, name)
            packing, features = self._rows([a + self.encode.sep + b for a, b, _ in found])
            features |= self._pair_features(packing, found)
        else:
            packing, features = self._rows(list(self._pieces(counted())))
        data = Layout.of(self.settings).records(features)
        shard = Shard(
            name=name,
            documents=counts["documents"],
            sequences=len(packing.lengths),
            rows=len(packing.splits) - 1,
            tokens=packing.tokens,
            bytes=len(data),
            crc32c=f"{google_crc32c.value(data):08x}",
            text_crc32c=f"{counts['crc']:08x}",
        )
        self.folder.write(name, data)
        self.folder.write(description(name), to_json(self.settings, shard=vars(shard)))

    def _pieces(self, documents: Iterator[tuple[int, bytes]]) -> Iterator[bytes]:
        """Cut documents into pieces as Hugging Face's overflowing tokens are."""
        room = (self.settings.sequence_length - 2) * self.encode.type.itemsize
        for _, ids in documents:
            for start in range(0, len(ids), room):
                yield ids[start : start + room]

    def _rows(self, pieces: list[bytes]) -> tuple[buckets.Packing, dict[str, np.ndarray]]:
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
