"""Text as packed rows of token ids in TFRecord files: written without TensorFlow, read with it.

A document becomes sequences ``[CLS] … [SEP]``, sequences are packed into rows of one length
(`buckets.pack`), rows become records of a plain format: anyone can read them with
``tf.data.TFRecordDataset`` and ``tf.io.parse_example`` (`Manifest.features` says how).

Which documents a shard holds depends on their numbers alone, so shards can be written in any order,
by one process or by eight machines, and have the same bytes. A shard is whole or absent.
"""

import collections
import concurrent.futures
import contextlib
import dataclasses
import functools
import hashlib
import itertools
import json
import multiprocessing
import multiprocessing.connection
import os
import pathlib
import signal
import struct
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Self

import google_crc32c
import numpy as np

from helpers.base import folders
from helpers.base.errors import CourseError
from helpers.text import buckets, corpus

if TYPE_CHECKING:
    import tensorflow as tf
    import tokenizers

FORMAT = 1
MANIFEST = "manifest.json"
TOKENIZER = "tokenizer.json"

CHUNK = 1_000  # documents that are tokenized together

# Words whose ids are kept, at most, and the longest such word: a bound for the memory.
CACHED_WORDS = 500_000
CACHED_LENGTH = 64

GROUP = 16  # pairs that exchange their second halves, at least

JOINED = 256  # new words that are given to the tokenizer as one text

# Read at once, from one place of one shard; and the blocks whose rows are mixed with each other.
BLOCK_BYTES = 256 * 1024
POOL_BLOCKS = 64


class NoDocuments(CourseError):
    """There is nothing to write."""


class EmptyDocument(CourseError):
    """A document has no token."""


class DocumentTooLong(CourseError):
    """A document is longer than any text: line ends are probably missing."""


class RowTooShort(CourseError):
    """A row has no place for a token between ``[CLS]`` and ``[SEP]``."""


class TooFewDocuments(CourseError):
    """Second halves of other documents can't be had: there are not enough others."""


class BadPart(CourseError):
    """A part that doesn't exist."""


class TooManyShards(CourseError):
    """More shards than documents, or less than one."""


class NotATokenizer(CourseError):
    """A tokenizer file, or an object, that is none."""


class SpecialTokensMissing(CourseError):
    """A tokenizer doesn't put ``[CLS]`` and ``[SEP]`` around a text, or has no padding."""


class OtherTokenizer(CourseError):
    """Records were made with another tokenizer."""


class OtherSettings(CourseError):
    """A folder holds records of other settings."""


class OtherDocuments(CourseError):
    """A folder holds records of other documents."""


class ManifestMissing(CourseError):
    """A folder holds no records."""


class ManifestDamaged(CourseError):
    """A manifest can't be understood."""


class ShardMissing(CourseError):
    """A shard that the manifest names isn't there."""


class ShardDamaged(CourseError):
    """A shard's bytes are not those that were written."""


class TooFewRows(CourseError):
    """Not even one batch."""


@dataclasses.dataclass(frozen=True)
class Settings:
    """What the bytes of all shards depend on, beside the documents themselves.

    Attributes:
        tokenizer_sha256: `fingerprint` of the tokenizer.
        vocabulary: Number of tokens; ids are below it.
        sequence_length: Places per row; no sequence is longer.
        shards: Number of files.
        seed: Says which documents come together in a shard.
        documents: Number of documents in all shards.
        pairs: Whether a sequence is ``[CLS] A [SEP] B [SEP]``, for next sentence prediction.
    """

    tokenizer_sha256: str
    vocabulary: int
    sequence_length: int
    shards: int
    seed: int
    documents: int
    pairs: bool = False


@dataclasses.dataclass(frozen=True)
class Shard:
    """One file of records.

    Attributes:
        name: Its name in the folder.
        documents: Documents in it.
        sequences: Pieces of documents in it, each with its own ``[CLS]`` and ``[SEP]``.
        rows: Records, each of ``sequence_length`` places.
        tokens: Places that hold a token, the special ones too.
        bytes: Its size.
        crc32c: Checksum of its bytes, in hexadecimal.
        text_crc32c: Checksum of its documents, in hexadecimal.
    """

    name: str
    documents: int
    sequences: int
    rows: int
    tokens: int
    bytes: int
    crc32c: str
    text_crc32c: str


@dataclasses.dataclass(frozen=True)
class Manifest:
    """What a folder of records holds.

    Attributes:
        path: The folder, local or ``gs://``.
        settings: What the bytes depend on.
        shards: The finished ones, in order.
    """

    path: str
    settings: Settings
    shards: tuple[Shard, ...]

    @property
    def complete(self) -> bool:
        """Whether all parts are written."""
        return len(self.shards) == self.settings.shards

    @property
    def rows(self) -> int:
        """Records in all finished shards."""
        return sum(shard.rows for shard in self.shards)

    @property
    def tokens(self) -> int:
        """Places that hold a token."""
        return sum(shard.tokens for shard in self.shards)

    @property
    def sequences(self) -> int:
        """Pieces of documents, each with its own ``[CLS]`` and ``[SEP]``."""
        return sum(shard.sequences for shard in self.shards)

    @property
    def bytes(self) -> int:
        """Size of all finished shards."""
        return sum(shard.bytes for shard in self.shards)

    @property
    def features(self) -> dict[str, str]:
        """Type of each feature's numbers: ``sequence_length`` of them, little-endian, as bytes."""
        return dict(_features(self.settings))

    @property
    def record_bytes(self) -> int:
        """Size of each record, with its frame: all are equally long."""
        return _Layout.of(self.settings).record_bytes

    def __repr__(self) -> str:
        wanted = self.settings
        ready = "" if self.complete else f"; {len(self.shards)} of {wanted.shards} shards ready"
        places = max(1, self.rows * wanted.sequence_length)
        return (
            f"{sum(shard.documents for shard in self.shards):,} documents in {self.rows:,} rows of "
            f"{wanted.sequence_length}, {self.tokens / places:.1%} tokens; "
            f"{len(self.shards)} shards, {self.bytes / 1e6:.1f} MB{ready}"
        )


# Tokenizers


def _backend(tokenizer: Any) -> "tokenizers.Tokenizer":
    """Find the Rust tokenizer in whatever the user has; a copy that neither pads nor truncates."""
    import tokenizers

    if isinstance(tokenizer, str | os.PathLike):
        path = pathlib.Path(tokenizer)
        if not path.is_file():
            raise corpus.TokenizerMissing(
                f"The tokenizer {path.name} is not there.",
                "No file of this name exists.",
                "Check the path; it must be the tokenizer.json that the tokenizer was saved as.",
            )
        text = path.read_bytes().decode(errors="replace")
    else:
        backend = getattr(tokenizer, "backend_tokenizer", tokenizer)
        backend = getattr(backend, "_tokenizer", backend)
        if not isinstance(backend, tokenizers.Tokenizer):
            raise NotATokenizer(
                f"{type(tokenizer).__name__} is no tokenizer that records can be written with.",
                "Only the fast ones, written in Rust, give the same ids at this speed.",
                "Pass a BertTokenizerFast, a tokenizers.Tokenizer or the path of tokenizer.json.",
            )
        text = backend.to_str()
    try:
        copy = tokenizers.Tokenizer.from_str(text)
    except Exception as error:  # the library raises Exception itself
        raise NotATokenizer(
            f"The tokenizer {pathlib.Path(tokenizer).name} can't be read.",
            f"{error}".strip().rstrip(".") + ".",
            "Pass the tokenizer.json that save_pretrained or Tokenizer.save wrote.",
        ) from None
    copy.no_padding()
    copy.no_truncation()
    return copy


def _canonical(backend: "tokenizers.Tokenizer") -> bytes:
    state = json.loads(backend.to_str()) | {"padding": None, "truncation": None}
    return json.dumps(state, sort_keys=True, ensure_ascii=False, indent=1).encode()


def fingerprint(tokenizer: Any) -> str:
    """Name a tokenizer by what it does, however it was loaded.

    Args:
        tokenizer: A ``BertTokenizerFast``, a ``tokenizers`` tokenizer, or a ``tokenizer.json``.

    Returns:
        SHA-256, in hexadecimal, of its vocabulary and rules; padding and truncation don't count.

    Raises:
        corpus.TokenizerMissing: There is no such file.
        NotATokenizer: It is none, or not a fast one.
    """
    return hashlib.sha256(_canonical(_backend(tokenizer))).hexdigest()


class Encoder:
    """Texts to ids as bytes, the very ids that the tokenizer gives.

    Where words can be encoded one by one, each is encoded once and remembered. That is exact if
    nothing looks across a space: BERT's normalizer changes single characters, its pre-tokenizer
    cuts at white space, WordPiece sees one piece at a time. Other tokenizers get whole texts.
    """

    def __init__(self, tokenizer: Any) -> None:
        self.backend = _backend(tokenizer)
        self.vocabulary = self.backend.get_vocab_size()
        self._code = "H" if self.vocabulary <= 2**16 else "i"
        self.type = np.dtype(f"<{self._code}")
        around = self.backend.encode("").ids
        if len(around) != 2 or self.backend.token_to_id("[PAD]") is None:
            raise SpecialTokensMissing(
                f"The tokenizer puts {len(around)} special tokens around a text.",
                "BERT reads [CLS] text [SEP], and [PAD] where a row has no text.",
                "Give it a BertProcessing post-processor and the five special tokens of BERT, as "
                "corpus.train_tokenizer does.",
            )
        self.cls, self.sep = (self._raw([token]) for token in around)
        self._separator_id = around[1]
        self._separator = self.backend.id_to_token(around[1])
        self.pad_id = self.backend.token_to_id("[PAD]")
        inside = [at for token, at in self.backend.get_vocab().items() if token.startswith("##")]
        self.continues = np.isin(np.arange(self.vocabulary), inside)
        self._ids: dict[str, bytes] | None = {} if self._by_words() else None

    @property
    def caches(self) -> bool:
        """Whether words are encoded once and remembered."""
        return self._ids is not None

    def _by_words(self) -> bool:
        """Tell whether a text's ids are its words' ids, one after another."""
        state = json.loads(self.backend.to_str())
        added = {token["content"]: token for token in state["added_tokens"]}
        separator = added.get(self._separator, {"normalized": True})
        return (
            (state["normalizer"] or {}).get("type") == "BertNormalizer"
            and (state["pre_tokenizer"] or {}).get("type") == "BertPreTokenizer"
            and state["model"].get("type") == "WordPiece"
            and not separator["normalized"]
            # No added token looks at its neighbours, spans words, or takes the separator's place.
            and not any(token["single_word"] for token in added.values())
            and not any(character.isspace() for text in added for character in text)
            and not any(self._separator in text for text in added.keys() - {self._separator})
            and not any(
                self._separator.startswith(text[at:])
                for text in added
                for at in range(1, len(text))
            )
        )

    def _raw(self, ids: Sequence[int]) -> bytes:
        return struct.pack(f"<{len(ids)}{self._code}", *ids)

    def _encode(self, texts: Sequence[str]) -> list[bytes]:
        """Encode each text by itself."""
        found = self.backend.encode_batch_fast(texts, add_special_tokens=False)
        return [self._raw(encoding.ids) for encoding in found]

    def _encode_words(self, words: Sequence[str]) -> list[bytes]:
        """Encode many short texts at once: each call of the tokenizer costs more than a word."""
        ids = [
            [*encoding.ids, self._separator_id]
            for encoding in self.backend.encode_batch_fast(
                [
                    self._separator.join(words[start : start + JOINED])
                    for start in range(0, len(words), JOINED)
                ],
                add_special_tokens=False,
            )
        ]
        flat = np.array(list(itertools.chain.from_iterable(ids)), self.type)
        ends = np.flatnonzero(flat == self._separator_id)
        if len(ends) != len(words):  # a word has the separator in it
            return self._encode(words)
        raw, size = flat.tobytes(), self.type.itemsize
        starts = [0, *((ends + 1) * size).tolist()]
        return [raw[start:end] for start, end in zip(starts, (ends * size).tolist(), strict=False)]

    def __call__(self, texts: Sequence[str]) -> list[bytes]:
        """Encode texts.

        Args:
            texts: Any strings.

        Returns:
            For each its ids without ``[CLS]`` and ``[SEP]``, as bytes of ``type``.
        """
        if self._ids is None:
            return self._encode(texts)
        # At spaces only: Python and the tokenizer disagree about some other white space.
        words = [text.split(" ") for text in texts]
        if len(self._ids) > CACHED_WORDS:
            self._ids.clear()
        new = list(set(itertools.chain.from_iterable(words)).difference(self._ids))
        self._ids.update(zip(new, self._encode_words(new), strict=True))
        encoded = [b"".join(map(self._ids.__getitem__, text)) for text in words]
        for word in new:
            if len(word) > CACHED_LENGTH:
                del self._ids[word]
        return encoded


# The bytes of a record


def _features(settings: Settings) -> Iterator[tuple[str, str]]:
    places = "uint8" if settings.sequence_length <= 2**8 else "uint16"
    yield "input_ids", "uint16" if settings.vocabulary <= 2**16 else "int32"
    yield "attention_mask", places
    yield "position_ids", places
    if settings.pairs:
        yield "token_type_ids", "uint8"
        yield "random_next", "uint8"


def _varint(number: int) -> bytes:
    return bytes([number]) if number < 128 else bytes([number & 127 | 128]) + _varint(number >> 7)


def _field(tag: int, payload: bytes) -> bytes:
    """A length-delimited field of a protocol buffer."""
    return bytes([tag << 3 | 2]) + _varint(len(payload)) + payload


def _masked_crc(data: bytes) -> bytes:
    """TFRecord's checksum: CRC-32C, rotated and shifted (TensorFlow's lib/hash/crc32c.h)."""
    crc = google_crc32c.value(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


@dataclasses.dataclass(frozen=True)
class _Layout:
    """Where the numbers stand in a record.

    A record is a ``tf.train.Example`` of one bytes feature for each array, in TFRecord's frame:
    length, its checksum, the example, its checksum. All arrays have constant sizes, so everything
    but numbers and the last checksum is the same in each record.

    Attributes:
        frame: Length and its checksum, 12 bytes.
        template: The example with all numbers 0.
        starts: Where each feature's numbers begin in the example.
        types: Type of each feature's numbers.
    """

    frame: bytes
    template: bytes
    starts: dict[str, int]
    types: dict[str, np.dtype]

    @classmethod
    @functools.cache
    def of(cls, settings: Settings) -> Self:
        entries, starts, types = [], {}, {}
        for name, kind in _features(settings):
            types[name] = np.dtype(kind).newbyteorder("<")
            value = _field(1, _field(1, bytes(types[name].itemsize * settings.sequence_length)))
            entries.append(_field(1, _field(1, name.encode()) + _field(2, value)))
        template = _field(1, b"".join(entries))
        at = len(template) - sum(map(len, entries))
        for (name, kind), entry in zip(types.items(), entries, strict=True):
            at += len(entry)
            starts[name] = at - kind.itemsize * settings.sequence_length
        length = struct.pack("<Q", len(template))
        return cls(length + _masked_crc(length), template, starts, types)

    @property
    def record_bytes(self) -> int:
        return len(self.frame) + len(self.template) + 4

    def records(self, features: dict[str, np.ndarray]) -> bytes:
        """Write rows.

        Args:
            features: Whole numbers [rows, sequence_length] by name.

        Returns:
            The records, ready for a file.
        """
        rows = len(features["input_ids"])
        examples = np.tile(np.frombuffer(self.template, np.uint8), (rows, 1))
        for name, values in features.items():
            raw = values.astype(self.types[name]).view(np.uint8)
            examples[:, self.starts[name] : self.starts[name] + raw.shape[1]] = raw
        parts = []
        for example in map(bytes, examples):
            parts += (self.frame, example, _masked_crc(example))
        return b"".join(parts)


# Writing


def _order(documents: int, seed: int) -> np.ndarray:
    """Shuffle the numbers 0 to documents - 1, the same with every version of every library.

    The keys are SplitMix64's (Steele and others, "Fast splittable pseudorandom number generators",
    2014), which never repeat within 2**64 numbers.
    """
    step = np.uint64(0x9E3779B97F4A7C15)
    with np.errstate(over="ignore"):
        key = (np.arange(1, documents + 1, dtype=np.uint64) + (np.uint64(seed) << 32)) * step
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            key = (key ^ (key >> np.uint64(shift))) * np.uint64(factor)
    return np.argsort(key ^ (key >> np.uint64(31)), kind="stable")


def shard_names(shards: int) -> list[str]:
    """Give the files' names in order: ``shard-00000-of-00008.tfrecord`` and so on."""
    return [f"shard-{number:05}-of-{shards:05}.tfrecord" for number in range(shards)]


def _encoded(
    texts: Sequence[str], numbers: Sequence[int], encode: Encoder
) -> Iterator[tuple[int, bytes]]:
    """Give each document's number and ids."""
    for number, text in zip(numbers, texts, strict=True):
        if len(text) > corpus.LONGEST:
            raise DocumentTooLong(
                f"Document {number} has {len(text):,} characters.",
                f"No text has more than {corpus.LONGEST:,} in one piece: its line ends are "
                "probably missing, and it would have to be held in memory as a whole.",
                "Cut it into paragraphs or articles, one per line, and start again.",
            )
    for number, ids in zip(numbers, encode(texts), strict=True):
        if not ids:
            raise EmptyDocument(
                f"Document {number} has no token.",
                "It is empty, or has white space and control characters only.",
                "Leave such documents out; corpus.documents does.",
            )
        yield number, ids


def _halves(
    ids: bytes, encode: Encoder, longest: int, seed: int
) -> Iterator[tuple[bytes, bytes, bytes]]:
    """Cut a document into pieces of nearly equal length, each of them in two at random.

    The place of the second cut is in the middle half of the piece.

    Args:
        ids: Of the document.
        encode: It says where words begin: there a cut is made, where nothing gets too long by it.
        longest: Tokens of a half, at most; at least 2.
        seed: With the piece itself it decides where the piece is cut.

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
    and no half is seen twice. It is made among halves of about one length: else a model could tell
    a random one by the lengths alone.

    Args:
        pairs: Number of the document and what `_halves` gives.
        name: Of the shard.
        seed: With the name it decides which pairs are taken, and what they get.

    Returns:
        First half, second half, and whether the second is a random one: where it happens to be
        what follows the very same first half in this shard, it is not.
    """
    draw = _order(len(pairs), zlib.crc32(f"{name} {seed}".encode()))
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
    """Divide neighbours into groups in which no document has more than half of the places.

    Args:
        documents: Number of each one's document.
        name: Of the shard.

    Returns:
        Where groups begin, and the last one ends.

    Raises:
        TooFewDocuments: Not even all of them together are such a group.
    """

    def mixed(some: np.ndarray) -> bool:
        return len(some) > 0 and 2 * np.unique(some, return_counts=True)[1].max() <= len(some)

    edges = [0]
    for end in range(GROUP, len(documents) - GROUP + 1, GROUP):
        if mixed(documents[edges[-1] : end]):
            edges.append(end)
    while not mixed(documents[edges[-1] :]):
        if len(edges) == 1:
            raise TooFewDocuments(
                f"{name} would have too few documents to take random second halves from.",
                f"It would have {len(documents)} pairs that need one, and most of their text is of "
                "one document."
                if len(documents)
                else "It would have one pair.",
                "Ask for fewer shards, give more documents, or write the records without pairs.",
            )
        edges.pop()
    return [*edges, len(documents)]


def _text_crc(texts: Sequence[str], crc: int = 0) -> int:
    return google_crc32c.extend(crc, "".join(f"{len(text)}:{text}" for text in texts).encode())


def _chunks(
    documents: Sequence[str] | dict[int, str], numbers: list[int]
) -> Iterator[tuple[list[int], list[str]]]:
    """Give some documents at a time, with their numbers."""
    for start in range(0, len(numbers), CHUNK):
        chunk = numbers[start : start + CHUNK]
        yield chunk, [documents[number] for number in chunk]


def _write_shard(
    chunks: Iterable[tuple[list[int], list[str]]],
    name: str,
    settings: Settings,
    encode: Encoder,
    place: folders.Folder,
    done: Callable[[int], None],
) -> None:
    """Write one shard, then its description: a shard with a description is finished."""
    documents, pieces, crc = 0, [], 0
    size = encode.type.itemsize
    room = (settings.sequence_length - 2) * size
    half = (settings.sequence_length - 3) // 2
    for numbers, texts in chunks:
        for number, ids in _encoded(texts, numbers, encode):
            if settings.pairs:
                halves = _halves(ids, encode, half, settings.seed)
                pieces += [(number, *pair) for pair in halves]
            else:  # as Hugging Face's overflowing tokens are
                pieces += [ids[start : start + room] for start in range(0, len(ids), room)]
        crc = _text_crc(texts, crc)
        documents += len(texts)
        done(len(texts))
    if settings.pairs:
        pairs = _exchange(pieces, name, settings.seed)
        pieces = [first + encode.sep + second for first, second, _ in pairs]
    sequences = [encode.cls + piece + encode.sep for piece in pieces]
    lengths = np.fromiter(map(len, sequences), np.int64) // size
    packing = buckets.pack(lengths, settings.sequence_length)
    features = {
        "input_ids": packing.lay_out(
            np.frombuffer(b"".join(sequences), encode.type), encode.pad_id
        ),
        "attention_mask": packing.segment_ids(),
        "position_ids": packing.position_ids(),
    }
    if settings.pairs:
        seconds = np.fromiter((len(second) for _, second, _ in pairs), np.int64) // size + 1
        types = np.repeat(np.tile([0, 1], len(pairs)), np.ravel([lengths - seconds, seconds], "F"))
        features["token_type_ids"] = packing.lay_out(types)
        random_next = np.zeros(lengths.sum(), np.uint8)
        random_next[np.cumsum(lengths) - lengths] = [random for *_, random in pairs]
        features["random_next"] = packing.lay_out(random_next)
    data = _Layout.of(settings).records(features)
    shard = Shard(
        name=name,
        documents=documents,
        sequences=len(sequences),
        rows=len(packing.splits) - 1,
        tokens=packing.tokens,
        bytes=len(data),
        crc32c=f"{google_crc32c.value(data):08x}",
        text_crc32c=f"{crc:08x}",
    )
    place.write(name, data)
    place.write(_description(name), _json(settings, shard=dataclasses.asdict(shard)))


def _description(name: str) -> str:
    return name.replace(".tfrecord", ".json")


def _json(settings: Settings, **more: Any) -> bytes:
    features = dict(_features(settings))
    content = {"format": FORMAT, "settings": dataclasses.asdict(settings), "features": features}
    return (json.dumps(content | more, indent=1, sort_keys=True) + "\n").encode()


def _parse(name: str, data: bytes) -> tuple[Settings, tuple[Shard, ...]]:
    """Read a manifest or a shard's description."""
    try:
        content = json.loads(data)
        if content["format"] != FORMAT:
            raise ValueError(f"format {content['format']}, not {FORMAT}")
        shards = content["shards"] if "shards" in content else [content["shard"]]
        return Settings(**content["settings"]), tuple(Shard(**shard) for shard in shards)
    except (ValueError, KeyError, TypeError) as error:
        raise ManifestDamaged(
            f"{name} can't be understood.",
            f"{type(error).__name__}: {error}.",
            "If you changed it, bring it back; else delete it and write the records again.",
        ) from None


def _check_settings(path: str, found: Settings, wanted: Settings) -> None:
    if found == wanted:
        return
    if found.tokenizer_sha256 != wanted.tokenizer_sha256:
        raise OtherTokenizer(
            f"The records in {_short(path)} were made with another tokenizer.",
            f"Its fingerprint begins with {found.tokenizer_sha256[:12]}, yours with "
            f"{wanted.tokenizer_sha256[:12]}: the ids mean other words.",
            "Use the tokenizer.json that lies beside the records, or write to another folder.",
        )
    was, now = dataclasses.asdict(found), dataclasses.asdict(wanted)
    differences = [
        f"{key} is {was[key]} there, {now[key]} here" for key in was if was[key] != now[key]
    ]
    raise OtherSettings(
        f"{_short(path)} holds records of other settings.",
        f"{'; '.join(differences)}.",
        "Write to another folder, or delete this one.",
    )


def _short(path: str) -> str:
    return path if "://" in path else pathlib.Path(path).name or "this folder"


def _kept(
    documents: Sequence[str], numbers: list[int], shard: Shard, place: folders.Folder
) -> bool:
    """Tell whether a finished shard is there, whole and of these documents."""
    data = place.read(shard.name)
    if data is None:
        return False
    _check_bytes(shard, data)
    crc = 0
    for _, texts in _chunks(documents, numbers):
        crc = _text_crc(texts, crc)
    if f"{crc:08x}" != shard.text_crc32c:
        raise OtherDocuments(
            f"{shard.name} was made of other documents.",
            "As many documents, the same settings, but the text differs.",
            "Write to another folder, or delete this one.",
        )
    return True


def _check_bytes(shard: Shard, data: bytes) -> None:
    if len(data) != shard.bytes:
        why = f"It has {len(data):,} bytes; {shard.bytes:,} were written."
    elif (crc := f"{google_crc32c.value(data):08x}") != shard.crc32c:
        why = f"Its checksum is {crc}; {shard.crc32c} was written."
    else:
        return
    raise ShardDamaged(
        f"{shard.name} is damaged.",
        why,
        "Delete it and run the same command again: only this shard is written anew.",
    )


def write(
    documents: Sequence[str],
    output: str | os.PathLike[str],
    tokenizer: Any,
    *,
    sequence_length: int = 128,
    shards: int = 8,
    part: tuple[int, int] = (1, 1),
    seed: int = 0,
    pairs: bool = False,
    workers: int = 1,
    done: Callable[[int], None] = lambda documents: None,
) -> Manifest:
    """Write documents as packed rows; go on where an earlier run of the same stopped.

    The bytes depend on documents, tokenizer, ``sequence_length``, ``shards``, ``seed`` and
    ``pairs`` alone.

    Args:
        documents: The texts; a list, or anything with ``len`` and ``[number]``.
        output: Folder here or ``gs://bucket/folder``.
        tokenizer: A ``BertTokenizerFast``, a ``tokenizers`` tokenizer, or a ``tokenizer.json``.
        sequence_length: Places per row. Longer documents become several sequences.
        shards: Number of files. For training, some 100 MB each, and several per reading machine.
        part: (3, 8) writes the third of eight parts of the shards; whichever part ends last, with
            the others' shards in the same folder, writes the manifest.
        seed: Shuffles documents over the shards.
        pairs: Write sequences ``[CLS] A [SEP] B [SEP]``, packed as others are: in one half of
            them B follows A in the document, in the other it comes from another document of the
            shard (BERT's paper, section 3.1, task 2). ``token_type_ids`` is 1 on B,
            ``random_next`` 1 on the ``[CLS]`` of the other half. The same in each epoch.
            Documents of a single token are left out.
        workers: Processes that write shards side by side. More than one needs a script whose
            main part stands under ``if __name__ == "__main__":``.
        done: Called with the number of documents just finished.

    Returns:
        The manifest, of the shards that are there so far.

    Raises:
        NoDocuments, EmptyDocument, DocumentTooLong: The documents can't be written.
        RowTooShort, TooManyShards, BadPart: A number can't be.
        TooFewDocuments: A shard would have too few for ``pairs``.
        corpus.TokenizerMissing, NotATokenizer, SpecialTokensMissing: The tokenizer can't be used.
        OtherTokenizer, OtherSettings, OtherDocuments: The folder holds other records.
        ShardDamaged, ManifestDamaged: What an earlier run wrote was changed since.
        files.CantWrite: The disk is full, or the place is not writable.
    """
    output = os.fspath(output)
    _check_numbers(len(documents), sequence_length, shards, part, pairs)
    encode = Encoder(tokenizer)
    canonical = _canonical(encode.backend)
    settings = Settings(
        tokenizer_sha256=hashlib.sha256(canonical).hexdigest(),
        vocabulary=encode.vocabulary,
        sequence_length=sequence_length,
        shards=shards,
        seed=seed,
        documents=len(documents),
        pairs=pairs,
    )
    place = folders.Folder(output)
    finished = _finished(output, place, settings)
    if place.size(TOKENIZER) is None:
        place.write(TOKENIZER, canonical)
    order = _order(len(documents), seed)
    missing = []
    for at, name in enumerate(shard_names(shards)):
        if at % part[1] != part[0] - 1:
            continue
        numbers = np.sort(order[at::shards]).tolist()
        if name in finished and _kept(documents, numbers, finished[name], place):
            done(len(numbers))
        else:
            missing.append((name, numbers))
    if workers > 1 and len(missing) > 1:
        _write_in_parallel(documents, missing, settings, output, canonical.decode(), workers, done)
    else:
        for name, numbers in missing:
            _write_shard(_chunks(documents, numbers), name, settings, encode, place, done)
    return _join(output, place, settings)


def _write_in_parallel(
    documents: Sequence[str],
    missing: Sequence[tuple[str, list[int]]],
    settings: Settings,
    output: str,
    tokenizer: str,
    workers: int,
    done: Callable[[int], None],
) -> None:
    """Write shards in processes of their own; each gets the texts of its shard only."""
    with concurrent.futures.ProcessPoolExecutor(
        workers, multiprocessing.get_context("spawn"), _start_worker, (settings, output, tokenizer)
    ) as pool:
        running = {}
        try:
            for name, numbers in missing:
                while len(running) == workers:
                    _wait(running, done)
                texts = [documents[number] for number in numbers]
                with _ctrl_c_later():  # the first one starts the processes
                    running[pool.submit(_work, name, numbers, texts)] = len(numbers)
            while running:
                _wait(running, done)
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise


@contextlib.contextmanager
def _ctrl_c_later() -> Iterator[None]:
    """Hold Ctrl-C back; a process that starts meanwhile inherits that from the beginning."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _wait(running: dict[concurrent.futures.Future, int], done: Callable[[int], None]) -> None:
    for future in concurrent.futures.wait(
        running, return_when=concurrent.futures.FIRST_COMPLETED
    ).done:
        documents = running.pop(future)
        future.result()
        done(documents)


def _start_worker(settings: Settings, output: str, tokenizer: str) -> None:
    """Prepare a process for all shards it will write; end it when its parent is gone."""
    import tokenizers

    def watch() -> None:
        multiprocessing.connection.wait([multiprocessing.parent_process().sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
    # Ctrl-C reaches all processes; the parent says what happens, when the shards at work are done.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    encode = Encoder(tokenizers.Tokenizer.from_str(tokenizer))
    _worker.update(settings=settings, encode=encode, place=folders.Folder(output))


_worker: dict[str, Any] = {}


def _work(name: str, numbers: list[int], texts: list[str]) -> None:
    chunks = _chunks(dict(zip(numbers, texts, strict=True)), numbers)
    _write_shard(chunks, name, **_worker, done=lambda documents: None)


def _join(output: str, place: folders.Folder, settings: Settings) -> Manifest:
    """Collect the finished shards of all parts; with the last one, write the manifest."""
    finished = _finished(output, place, settings)
    names = shard_names(settings.shards)
    made = Manifest(output, settings, tuple(finished[name] for name in names if name in finished))
    if made.complete:
        shards = [dataclasses.asdict(shard) for shard in made.shards]
        place.write(MANIFEST, _json(settings, shards=shards))
    return made


def _finished(path: str, place: folders.Folder, settings: Settings) -> dict[str, Shard]:
    """Read the descriptions that are there, of any part; refuse those of other settings."""
    if (data := place.read(MANIFEST)) is not None:
        _check_settings(path, _parse(MANIFEST, data)[0], settings)
    finished = {}
    for name in shard_names(settings.shards):
        data = place.read(_description(name))
        if data is not None:
            found, (shard,) = _parse(_description(name), data)
            _check_settings(path, found, settings)
            finished[name] = shard
    return finished


def _check_numbers(
    documents: int, sequence_length: int, shards: int, part: tuple[int, int], pairs: bool
) -> None:
    if documents == 0:
        raise NoDocuments(
            "There are no documents.",
            "Nothing was left of the input, or the list is empty.",
            "Check what you pass; corpus.documents gives those of which something is left.",
        )
    if sequence_length < (least := 7 if pairs else 3):
        raise RowTooShort(
            f"sequence_length is {sequence_length}.",
            "[CLS] and two [SEP] take three places of each pair; each half needs two."
            if pairs
            else "[CLS] and [SEP] take two places of each sequence, so no token would fit.",
            f"Take 128, or at least {least}.",
        )
    if not 1 <= shards <= documents:
        raise TooManyShards(
            f"{shards} shards for {documents:,} documents.",
            "Each shard needs at least one document, and there must be at least one shard.",
            f"Ask for between 1 and {documents:,} shards.",
        )
    number, parts = part
    if not 1 <= number <= parts <= shards:
        raise BadPart(
            f"Part {number} of {parts}, with {shards} shards.",
            "Parts count from 1, and each must have at least one shard.",
            f"Ask for part 1 to {min(max(parts, 1), shards)} of at most {shards}, or more shards.",
        )


def manifest(path: str | os.PathLike[str]) -> Manifest:
    """Say what a folder of records holds.

    Args:
        path: Folder here or ``gs://bucket/folder``.

    Returns:
        The manifest.

    Raises:
        ManifestMissing: There are no records, or not all parts are written.
        ManifestDamaged: The manifest was changed by hand, or is of another version.
    """
    path = os.fspath(path)
    data = folders.Folder(path).read(MANIFEST)
    if data is None:
        raise ManifestMissing(
            f"{_short(path)} holds no finished records.",
            f"There is no {MANIFEST}: the folder is another one, or not all parts are written.",
            "Check the path, or run the command that writes them again: it goes on where it "
            "stopped.",
        )
    return Manifest(path, *_parse(MANIFEST, data))


def verify(path: str | os.PathLike[str]) -> Manifest:
    """Read every shard and compare its bytes with the manifest.

    Args:
        path: Folder here or ``gs://bucket/folder``.

    Returns:
        The manifest, of which every shard was found whole.

    Raises:
        ManifestMissing, ManifestDamaged: As `manifest`.
        ShardMissing: A shard isn't there.
        ShardDamaged: A shard has other bytes.
    """
    table = manifest(path)
    place = folders.Folder(table.path)
    for shard in table.shards:
        data = place.read(shard.name)
        if data is None:
            raise _missing(shard.name)
        _check_bytes(shard, data)
    return table


def _missing(name: str) -> ShardMissing:
    return ShardMissing(
        f"{name} isn't there.",
        "The manifest names it; it was deleted, or not copied with the others.",
        "Copy it again, or run the command that writes the records: only this shard is written.",
    )


# Reading


def _permutation(count: "tf.Tensor", seed: "tf.Tensor") -> "tf.Tensor":
    """Shuffle 0 to count - 1 as a pure function of the seed, int32 [count]."""
    import tensorflow as tf

    keys = tf.random.stateless_uniform(
        [count], seed, tf.int32.min, tf.int32.max, tf.int32, alg="philox"
    )
    return tf.argsort(keys, stable=True)


def dataset(
    path: str | os.PathLike[str],
    *,
    global_batch_size: int,
    seed: int,
    start_step: int = 0,
    input_context: "tf.distribute.InputContext | None" = None,
) -> "tf.data.Dataset":
    """Read rows for ever, in an order that is a pure function of (seed, epoch, step).

    Blocks of neighbouring rows are shuffled over all shards, then rows within a pool of
    ``POOL_BLOCKS`` blocks, anew in each epoch. A run that starts at a later step computes where it
    is and reads from there: what lies before is neither read nor parsed, up to a part of a pool.

    Args:
        path: Folder here or ``gs://bucket/folder``.
        global_batch_size: Rows per step over all replicas and machines. An epoch has
            ``rows // global_batch_size`` steps; the rows left over are others in each epoch.
        seed: Of the run.
        start_step: Steps already done since the beginning of the run, over all epochs.
        input_context: From ``strategy.distribute_datasets_from_function``: each machine then gets
            its own rows of each global batch.

    Returns:
        Batches ``input_ids``, ``attention_mask`` (1, 2, ... for the sequences of a row, 0 on
        padding) and ``position_ids``, with pairs also ``token_type_ids`` and ``random_next``, each
        int32 [rows, sequence_length], for ever.

    Raises:
        ManifestMissing, ManifestDamaged: As `manifest`.
        ShardMissing, ShardDamaged: A shard isn't there or has another size.
        TooFewRows: There is not even one batch.
        CourseError: The machines can't share a batch equally.
    """
    import tensorflow as tf

    from helpers.text import masking

    table = manifest(path)
    place = folders.Folder(table.path)
    for shard in table.shards:
        size = place.size(shard.name)
        if size is None:
            raise _missing(shard.name)
        if size != shard.bytes:
            _check_bytes(shard, place.read(shard.name))
    steps = table.rows // global_batch_size
    if steps < 1:
        raise TooFewRows(
            f"{table.rows:,} rows are fewer than one batch of {global_batch_size:,}.",
            "An epoch would have no step, for ever.",
            "Take a smaller batch, or more text.",
        )
    machines = input_context.num_input_pipelines if input_context else 1
    machine = input_context.input_pipeline_id if input_context else 0
    if global_batch_size % machines:
        raise CourseError(
            f"A batch of {global_batch_size} for {machines} machines.",
            "Each must get as many rows as the others.",
            f"Take a multiple of {machines}.",
        )
    each = global_batch_size // machines

    layout = _Layout.of(table.settings)
    rows_per_block = max(1, BLOCK_BYTES // layout.record_bytes)
    block_shard, block_offset, block_rows = [], [], []
    for number, shard in enumerate(table.shards):
        for first in range(0, shard.rows, rows_per_block):
            block_shard.append(number)
            block_offset.append(first * layout.record_bytes)
            block_rows.append(min(rows_per_block, shard.rows - first))
    paths = [f"{table.path.rstrip('/')}/{shard.name}" for shard in table.shards]
    pools = -(-len(block_rows) // POOL_BLOCKS)
    ends = np.minimum(np.arange(1, pools + 1) * POOL_BLOCKS, len(block_rows)) - 1

    def at(epoch: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
        # Apart from the seeds that masks are drawn with at the same place of the run.
        return tf.random.experimental.stateless_fold_in(
            masking.draw(seed, epoch, number), 1, alg="philox"
        )

    # AutoGraph has nothing to convert in these functions, and takes half a second to see it.
    as_it_is = tf.autograph.experimental.do_not_convert

    @as_it_is
    def read_block(block: tf.Tensor) -> tf.data.Dataset:
        variant = tf.raw_ops.TFRecordDatasetV2(
            filenames=tf.gather(paths, [tf.gather(block_shard, block)]),
            compression_type="",
            buffer_size=rows_per_block * layout.record_bytes,
            byte_offsets=tf.gather(tf.constant(block_offset, tf.int64), [block]),
        )
        spec = tf.TensorSpec([], tf.string)
        # Only the last block of a shard can have fewer rows, and there the file ends.
        records = tf.data.experimental.from_variant(variant, spec)
        return records.batch(rows_per_block).take(1)

    @as_it_is
    def read_epoch(epoch: tf.Tensor) -> tf.data.Dataset:
        order = _permutation(len(block_rows), at(epoch, 0))
        pool_ends = tf.gather(tf.cumsum(tf.gather(block_rows, order)), ends)
        first = tf.cast(tf.where(epoch == start_step // steps, start_step % steps, 0), tf.int32)
        first *= global_batch_size
        first_pool = tf.searchsorted(pool_ends, [first], side="right")[0]
        skipped = first - tf.where(first_pool > 0, pool_ends[first_pool - 1], 0)

        @as_it_is
        def read_pool(pool: tf.Tensor) -> tf.data.Dataset:
            start = tf.cast(pool, tf.int32) * POOL_BLOCKS
            blocks = tf.data.Dataset.from_tensor_slices(order[start : start + POOL_BLOCKS])
            records = blocks.interleave(
                read_block,
                cycle_length=4,
                num_parallel_calls=tf.data.AUTOTUNE,
                deterministic=True,
            ).rebatch(rows_per_block * POOL_BLOCKS)
            drop = tf.where(pool == tf.cast(first_pool, tf.int64), skipped, 0)

            @as_it_is
            def shuffle(some: tf.Tensor) -> tf.Tensor:
                return tf.gather(some, _permutation(tf.size(some), at(epoch, pool + 1))[drop:])

            return records.map(shuffle)

        pool_numbers = tf.data.Dataset.range(tf.cast(first_pool, tf.int64), pools)
        return pool_numbers.flat_map(read_pool).rebatch(global_batch_size, drop_remainder=True)

    @as_it_is
    def parse(records: tf.Tensor) -> dict[str, tf.Tensor]:
        # All examples have the same layout: their numbers are cut out, which is faster than to
        # parse them, as tf.io.parse_example does.
        mine = tf.reshape(records, [global_batch_size])[machine * each : (machine + 1) * each]
        raw = tf.reshape(tf.io.decode_raw(mine, tf.uint8), [each, len(layout.template)])
        length, features = table.settings.sequence_length, {}
        for name, kind in layout.types.items():
            start = layout.starts[name]
            numbers = raw[:, start : start + length * kind.itemsize]
            if kind.itemsize > 1:
                numbers = tf.reshape(numbers, [each, length, kind.itemsize])
                numbers = tf.bitcast(numbers, tf.as_dtype(kind.newbyteorder("=")))
            features[name] = tf.cast(numbers, tf.int32)
        return features

    epochs = tf.data.Dataset.range(start_step // steps, np.iinfo(np.int32).max)
    return (
        epochs.flat_map(read_epoch)
        .map(parse, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
        .prefetch(tf.data.AUTOTUNE)
    )
