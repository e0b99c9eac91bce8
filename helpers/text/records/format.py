"""What a folder of records holds: its settings, its shards, and what a record is."""

import dataclasses
import functools
import hashlib
import json
import struct
from collections.abc import Iterable, Mapping
from typing import Any

import google_crc32c
import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from helpers.base.errors import CourseError, unreadable
from helpers.base.folders import short

FORMAT = 3
SETTINGS = "settings.json"  # written first: the folder is for these settings from then on
MANIFEST = "manifest.json"  # written last: all shards are there
TOKENIZER = "tokenizer.json"
HELD_OUT = "held-out"  # the folder, beside a training's records, of what was held out of them


class OtherSettings(CourseError):
    """A folder holds records of other settings, or of other documents."""


class OtherTokenizer(OtherSettings):
    """Records were made with another tokenizer."""


class ShardDamaged(CourseError):
    """A shard's bytes are not those that were written."""


@dataclasses.dataclass(frozen=True)
class Settings:
    """What the bytes of all shards depend on."""

    documents: str  # `documents.digest` of what was read: which they are
    part: str  # of these documents: ``all``, ``train`` or ``held-out``
    tokenizer_sha256: str  # `fingerprint` of the tokenizer
    vocabulary: int  # number of tokens; ids are below it
    sequence_length: int  # positions per row; no sequence is longer
    shards: int  # number of files
    seed: int  # decides which documents come together in a shard

    def __post_init__(self) -> None:
        if not 3 <= self.sequence_length <= 2**16:  # [CLS] and [SEP]; positions have 16 bits
            raise ValueError(f"sequence_length is {self.sequence_length}, not 3 to 65,536")
        if not 1 <= self.shards < 100_000:  # the names have five digits
            raise ValueError(f"shards is {self.shards}, not 1 to 99,999")

    @property
    def features(self) -> dict[str, str]:
        """Type of each feature's numbers."""
        position = "uint8" if self.sequence_length <= 2**8 else "uint16"
        return {
            "input_ids": "uint16" if self.vocabulary <= 2**16 else "int32",
            "attention_mask": position,
            "position_ids": position,
        }


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

    def check_size(self, size: int) -> None:
        """Compare a size in bytes with the file's when it was written."""
        if size != self.bytes:
            raise self._damaged(f"It has {size:,} bytes; {self.bytes:,} were written.")

    def check(self, pieces: Iterable[bytes]) -> None:
        """Compare the file's bytes with those that were written."""
        crc = size = 0
        for piece in pieces:
            crc, size = google_crc32c.extend(crc, piece), size + len(piece)
        self.check_size(size)
        if f"{crc:08x}" != self.crc32c:
            raise self._damaged(f"Its checksum is {crc:08x}; {self.crc32c} was written.")

    def _damaged(self, why: str) -> ShardDamaged:
        fix = "Delete it and run the same command again: only this shard is written anew."
        return ShardDamaged(f"{self.name} is damaged.", why, fix)


def _sum_of(name: str) -> property:
    return property(lambda manifest: sum(getattr(shard, name) for shard in manifest.shards))


@dataclasses.dataclass(frozen=True)
class Manifest:
    """What a folder of records holds."""

    path: str  # the folder, local or ``gs://``
    settings: Settings  # what the bytes depend on
    shards: tuple[Shard, ...]  # in order

    # Of all shards together, as of each `Shard`.
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
        zeros = np.zeros((1, self.settings.sequence_length), np.int32)
        return len(records(dict.fromkeys(self.features, zeros), self.features))

    def __repr__(self) -> str:
        positions = max(1, self.rows * self.settings.sequence_length)
        return (
            f"{_some(self.documents, 'document')} in {_some(self.rows, 'row')} of "
            f"{self.settings.sequence_length}, {self.tokens / positions:.1%} tokens; "
            f"{_some(len(self.shards), 'shard')}, {self.bytes / 1e6:.1f} MB"
        )


def _some(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'s' * (number != 1)}"


def shard_name(number: int, shards: int) -> str:
    """Give a file's name, such as ``shard-00000-of-00008.tfrecord``."""
    return f"shard-{number:05}-of-{shards:05}.tfrecord"


def description(name: str) -> str:
    """Give the name of the file that describes a shard: the shard is finished when it is there."""
    return name.replace(".tfrecord", ".json")


def to_json(settings: Settings, **more: Any) -> bytes:
    """Write settings, a manifest (with ``shards``) or a shard's description (with ``shard``)."""
    content = {"format": FORMAT, "settings": dataclasses.asdict(settings)}
    content |= {"features": settings.features} | more
    return (json.dumps(content, indent=1, sort_keys=True) + "\n").encode()


def from_json(name: str, data: bytes) -> tuple[Settings, tuple[Shard, ...]]:
    """Read what `to_json` wrote.

    Raises:
        CourseError: It was changed, or is of another version.
    """
    fix = "If you changed it, bring it back; else write the records again, to another folder."
    with unreadable(f"{name} can't be understood.", fix):
        content = json.loads(data)
        if content["format"] != FORMAT:
            raise ValueError(f"format {content['format']}, not {FORMAT}")
        shards = [content["shard"]] if "shard" in content else content.get("shards", [])
        return Settings(**content["settings"]), tuple(Shard(**shard) for shard in shards)


def check_same(path: str, found: Settings, wanted: Settings) -> None:
    """Refuse to mix records of different settings in one folder.

    Raises:
        OtherTokenizer, OtherSettings: They differ.
    """
    was, now = dataclasses.asdict(found), dataclasses.asdict(wanted)
    other = [key for key in was if was[key] != now[key]]
    if other:
        tokenizer = "tokenizer_sha256" in other
        what = "another tokenizer" if tokenizer else "other settings"
        raise (OtherTokenizer if tokenizer else OtherSettings)(
            f"{short(path)} holds records of {what}.",
            f"{'; '.join(f'{key} is {was[key]} there, {now[key]} here' for key in other)}.",
            "Write to another folder, or delete this one.",
        )


def check_tokenizer(path: str, beside: bytes, settings: Settings) -> None:
    """Refuse a tokenizer that lies beside records that were made with another one.

    Raises:
        OtherTokenizer: The file was exchanged.
    """
    found = dataclasses.replace(settings, tokenizer_sha256=hashlib.sha256(beside).hexdigest())
    check_same(path, found, settings)


@functools.cache
def _example() -> type:
    """Make the class of ``tf.train.Example``: importing TensorFlow for it would take seconds.

    Its map of features is, in the bytes, a list of entries (protobuf.dev, "Maps").
    """
    fields = {  # of each message: name, number, type, repeated
        "Example": [("features", 1, "Features", False)],
        "Features": [("feature", 1, "Entry", True)],
        "Entry": [("key", 1, "", False), ("value", 2, "Feature", False)],
        "Feature": [("bytes_list", 1, "BytesList", False)],
        "BytesList": [("value", 1, "", True)],
    }
    file = descriptor_pb2.FileDescriptorProto(name="example.proto", syntax="proto3")
    for message, some in fields.items():
        made = file.message_type.add(name=message)
        for name, number, kind, repeated in some:
            of = {"type": 11, "type_name": f".{kind}"} if kind else {"type": 12}  # 12: bytes
            made.field.add(name=name, number=number, label=3 if repeated else 1, **of)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("Example"))


def _crc(data: bytes) -> bytes:
    """TFRecord's checksum: CRC-32C, rotated and shifted (TensorFlow's lib/hash/crc32c.h)."""
    crc = google_crc32c.value(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def records(rows: Mapping[str, np.ndarray], types: Mapping[str, str]) -> bytes:
    """Write rows, whole numbers [rows, sequence_length] by feature, as records of a TFRecord file.

    A record is the length of the example, a checksum of that, the example, and its checksum. The
    example has one byte string for each feature, all equally long.
    """
    raw = {}
    for name, values in rows.items():
        kind = np.dtype(types[name]).newbyteorder("<")
        raw[name] = values.astype(kind).view(f"V{kind.itemsize * values.shape[1]}")[:, 0].tolist()
    make, parts = _example(), []
    for row in zip(*raw.values(), strict=True):
        example = make()
        for name, numbers in zip(raw, row, strict=True):
            entry = example.features.feature.add(key=name.encode())
            entry.value.bytes_list.value.append(numbers)
        data = example.SerializeToString()
        length = struct.pack("<Q", len(data))
        parts += (length, _crc(length), data, _crc(data))
    return b"".join(parts)
