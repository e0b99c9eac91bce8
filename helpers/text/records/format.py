"""What a folder of records holds: its settings, its shards, and where numbers stand in a record."""

import dataclasses
import functools
import hashlib
import json
import re
import struct
from collections.abc import Iterable
from typing import Any, Self

import google_crc32c
import numpy as np

from helpers.base.errors import CourseError, unreadable
from helpers.base.folders import short

FORMAT = 2  # 1: which shard a document went to depended on its number among all documents
MANIFEST = "manifest.json"
TOKENIZER = "tokenizer.json"
LONGEST_ROW = 2**16  # positions in a row are stored in 16 bits


def some(number: int, thing: str) -> str:
    """Count things: ``1 row``, ``2,000 rows``."""
    return f"{number:,} {thing}{'s' * (number != 1)}"


class OtherTokenizer(CourseError):
    """Records were made with another tokenizer."""


class OtherSettings(CourseError):
    """A folder holds records of other settings."""


class ShardDamaged(CourseError):
    """A shard's bytes are not those that were written."""


@dataclasses.dataclass(frozen=True)
class Settings:
    """What the bytes of all shards depend on, beside the documents themselves."""

    tokenizer_sha256: str  # `fingerprint` of the tokenizer
    vocabulary: int  # number of tokens; ids are below it
    sequence_length: int  # positions per row; no sequence is longer
    shards: int  # number of files
    seed: int  # decides which documents come together in a shard
    # Whether a sequence is ``[CLS] A [SEP] B [SEP]``, for next sentence prediction.
    pairs: bool = False

    @property
    def features(self) -> dict[str, str]:
        """Type of each feature's numbers."""
        position = "uint8" if self.sequence_length <= 2**8 else "uint16"
        features = {
            "input_ids": "uint16" if self.vocabulary <= 2**16 else "int32",
            "attention_mask": position,
            "position_ids": position,
        }
        pairs = {"token_type_ids": "uint8", "random_next": "uint8"}
        return features | pairs if self.pairs else features


@dataclasses.dataclass(frozen=True)
class Shard:
    """One file of records."""

    name: str  # its name in the folder
    documents: int  # documents in it
    sequences: int  # pieces of documents in it, each with its own ``[CLS]`` and ``[SEP]``
    rows: int  # records, each of ``sequence_length`` positions
    tokens: int  # positions that hold a token, the special ones included
    bytes: int  # its size
    crc32c: str  # checksum of its bytes, in hexadecimal
    text: str  # sum of its documents' digests, in hexadecimal; empty in format 1

    def check(self, pieces: Iterable[bytes]) -> None:
        """Compare the file's bytes with those that were written."""
        crc = size = 0
        for piece in pieces:
            crc, size = google_crc32c.extend(crc, piece), size + len(piece)
        if size != self.bytes:
            why = f"It has {size:,} bytes; {self.bytes:,} were written."
        elif f"{crc:08x}" != self.crc32c:
            why = f"Its checksum is {crc:08x}; {self.crc32c} was written."
        else:
            return
        raise ShardDamaged(
            f"{self.name} is damaged.",
            why,
            "Delete it and run the same command again: only this shard is written anew.",
        )


def _sum_of(name: str) -> property:
    return property(lambda manifest: sum(getattr(shard, name) for shard in manifest.shards))


@dataclasses.dataclass(frozen=True)
class Manifest:
    """What a folder of records holds."""

    path: str  # the folder, local or ``gs://``
    settings: Settings  # what the bytes depend on
    shards: tuple[Shard, ...]  # the finished ones, in order

    @property
    def complete(self) -> bool:
        """Whether all shards are written."""
        return len(self.shards) == self.settings.shards

    # Of all finished shards together, as of each `Shard`.
    documents, sequences, rows, tokens, bytes = map(
        _sum_of, ("documents", "sequences", "rows", "tokens", "bytes")
    )

    @property
    def features(self) -> dict[str, str]:
        """Type of each feature's numbers: ``sequence_length`` of them, little-endian, as bytes."""
        return self.settings.features

    @property
    def fingerprint(self) -> dict[str, str | int]:
        """Say what a training's numbers depend on: what is in the records, not where they are."""
        content = [(shard.name, shard.rows, shard.crc32c) for shard in self.shards]
        return {
            "rows": self.rows,
            "sequence_length": self.settings.sequence_length,
            "tokenizer": self.settings.tokenizer_sha256,
            "content": hashlib.sha256(json.dumps(content).encode()).hexdigest(),
        }

    @property
    def record_bytes(self) -> int:
        """Size of each record, with its frame: all are equally long."""
        return Layout.of(self.settings).record_bytes

    def __repr__(self) -> str:
        wanted = self.settings
        ready = "" if self.complete else f"; {len(self.shards)} of {wanted.shards} shards ready"
        positions = max(1, self.rows * wanted.sequence_length)
        return (
            f"{some(self.documents, 'document')} in {some(self.rows, 'row')} of "
            f"{wanted.sequence_length}, {self.tokens / positions:.1%} tokens; "
            f"{some(len(self.shards), 'shard')}, {self.bytes / 1e6:.1f} MB{ready}"
        )


def shuffled(documents: int, seed: int) -> np.ndarray:
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


def description(name: str) -> str:
    """Give the name of the file that describes a shard: the shard is finished when it is there."""
    return name.replace(".tfrecord", ".json")


def is_description(name: str) -> bool:
    """Tell whether a file of this name describes a shard, of any number of shards."""
    return re.fullmatch(r"shard-\d{5}-of-\d{5}\.json", name) is not None


def to_json(settings: Settings, **more: Any) -> bytes:
    """Write a manifest (with ``shards``) or a shard's description (with ``shard``)."""
    content = {"format": FORMAT, "settings": dataclasses.asdict(settings)}
    content |= {"features": settings.features} | more
    return (json.dumps(content, indent=1, sort_keys=True) + "\n").encode()


def from_json(name: str, data: bytes) -> tuple[Settings, tuple[Shard, ...]]:
    """Read a manifest or a shard's description."""
    fix = "If you changed it, bring it back; else delete it and write the records again."
    with unreadable(f"{name} can't be understood.", fix):
        content = json.loads(data)
        shards = content["shards"] if "shards" in content else [content["shard"]]
        if content["format"] == 1:
            del content["settings"]["documents"]
            for shard in shards:
                del shard["text_crc32c"]
                shard["text"] = ""
        elif content["format"] != FORMAT:
            raise ValueError(f"format {content['format']}, not {FORMAT}")
        return Settings(**content["settings"]), tuple(Shard(**shard) for shard in shards)


def other_tokenizer(path: str, there: str, here: str) -> OtherTokenizer:
    """Make the error of records and a tokenizer that don't belong together, by fingerprints."""
    return OtherTokenizer(
        f"The records in {short(path)} were made with another tokenizer.",
        f"Its fingerprint begins with {there[:12]}, yours with {here[:12]}: the ids mean other "
        "words.",
        "Use the tokenizer.json that lies beside the records, or write to another folder.",
    )


def check_same(path: str, found: Settings, wanted: Settings) -> None:
    """Refuse to mix records of different settings in one folder."""
    if found == wanted:
        return
    if found.tokenizer_sha256 != wanted.tokenizer_sha256:
        raise other_tokenizer(path, found.tokenizer_sha256, wanted.tokenizer_sha256)
    was, now = dataclasses.asdict(found), dataclasses.asdict(wanted)
    differences = [
        f"{key} is {was[key]} there, {now[key]} here" for key in was if was[key] != now[key]
    ]
    raise OtherSettings(
        f"{short(path)} holds records of other settings.",
        f"{'; '.join(differences)}.",
        "Write to another folder, or delete this one.",
    )


def _varint(number: int) -> bytes:
    return bytes([number]) if number < 128 else bytes([number & 127 | 128]) + _varint(number >> 7)


def _field(tag: int, payload: bytes) -> bytes:
    """Write a length-delimited field of a protocol buffer."""
    return bytes([tag << 3 | 2]) + _varint(len(payload)) + payload


def _masked_crc(data: bytes) -> bytes:
    """TFRecord's checksum: CRC-32C, rotated and shifted (TensorFlow's lib/hash/crc32c.h)."""
    crc = google_crc32c.value(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


@dataclasses.dataclass(frozen=True)
class Layout:
    """Where the numbers stand in a record.

    A record is a ``tf.train.Example`` of one bytes feature for each array, in TFRecord's frame:
    length, its checksum, the example, its checksum. All arrays have constant sizes, so everything
    but numbers and the last checksum is the same in each record.
    """

    frame: bytes  # length and its checksum, 12 bytes
    template: bytes  # the example with all numbers 0
    starts: dict[str, int]  # where each feature's numbers begin in the example
    types: dict[str, np.dtype]
    length: int  # numbers of each feature

    @classmethod
    @functools.cache
    def of(cls, settings: Settings) -> Self:
        """Find the layout of records of these settings."""
        entries, starts, types = [], {}, {}
        for name, kind in settings.features.items():
            types[name] = np.dtype(kind).newbyteorder("<")
            value = _field(1, _field(1, bytes(types[name].itemsize * settings.sequence_length)))
            entries.append(_field(1, _field(1, name.encode()) + _field(2, value)))
        template = _field(1, b"".join(entries))
        at = len(template) - sum(map(len, entries))
        for (name, kind), entry in zip(types.items(), entries, strict=True):
            at += len(entry)
            starts[name] = at - kind.itemsize * settings.sequence_length
        frame = struct.pack("<Q", len(template))
        frame += _masked_crc(frame)
        return cls(frame, template, starts, types, settings.sequence_length)

    @property
    def record_bytes(self) -> int:
        """Size of a record with its frame."""
        return len(self.frame) + len(self.template) + 4

    def records(self, features: dict[str, np.ndarray]) -> bytes:
        """Write rows, whole numbers [rows, sequence_length] by name, as records for a file."""
        rows = len(features["input_ids"])
        examples = np.tile(np.frombuffer(self.template, np.uint8), (rows, 1))
        for name, values in features.items():
            raw = values.astype(self.types[name]).view(np.uint8)
            examples[:, self.starts[name] : self.starts[name] + raw.shape[1]] = raw
        parts = []
        for example in map(bytes, examples):
            parts += (self.frame, example, _masked_crc(example))
        return b"".join(parts)
