"""What a folder of records holds: its settings, its shards, and what a record is."""

import dataclasses
import hashlib
import json
import os
import struct
from collections.abc import Iterable, Mapping

import google_crc32c
import numpy as np
import tokenizers

from helpers.base.errors import CourseError, unreadable
from helpers.base.folders import Folder, short
from helpers.base.language import translated

FORMAT = 4
MANIFEST = "manifest.json"  # written last: all shards are there
TOKENIZER = "tokenizer.json"
HELD_OUT = "held-out"  # the folder, beside a training's records, of what was held out of them


class ShardDamaged(CourseError):
    """A shard's bytes are not those that were written."""


@dataclasses.dataclass(frozen=True)
class Settings:
    """What the bytes of all shards depend on."""

    documents: str  # `Source.digest` of what was read: which they are
    part: str  # of these documents: ``all``, ``train`` or ``held-out``
    tokenizer_sha256: str  # SHA-256 of `corpus.canonical` of the tokenizer
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
    def names(self) -> list[str]:
        """Names of the shards, in order."""
        return [f"shard-{k:05}-of-{self.shards:05}.tfrecord" for k in range(self.shards)]

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
    rows: int  # records, each of ``sequence_length`` positions
    tokens: int  # positions that hold a token, the special ones included
    bytes: int  # its size
    crc32c: str  # checksum of its bytes, in hexadecimal

    def check_size(self, size: int) -> None:
        """Compare a size in bytes with what was written; raise `ShardDamaged`."""
        if size != self.bytes:
            raise self._damaged(f"It has {size:,} bytes; {self.bytes:,} were written.")

    def check(self, pieces: Iterable[bytes]) -> None:
        """Compare the file's bytes with those that were written; raise `ShardDamaged`."""
        crc = size = 0
        for piece in pieces:
            crc, size = google_crc32c.extend(crc, piece), size + len(piece)
        self.check_size(size)
        if f"{crc:08x}" != self.crc32c:
            raise self._damaged(f"Its checksum is {crc:08x}; {self.crc32c} was written.")

    def _damaged(self, why: str) -> ShardDamaged:
        fix = "Delete it and prepare the records again: only this shard is written anew."
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
    documents, rows, tokens, bytes = map(_sum_of, ("documents", "rows", "tokens", "bytes"))

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

    def __repr__(self) -> str:
        positions = max(1, self.rows * self.settings.sequence_length)
        return translated(
            f"{self.documents:,} documents in {self.rows:,} rows of "
            f"{self.settings.sequence_length}, {self.tokens / positions:.1%} tokens; "
            f"{len(self.shards):,} shards, {self.bytes / 1e6:.1f} MB"
        )


def to_json(settings: Settings, shards: Iterable[Shard]) -> bytes:
    """Write a manifest; one with a single shard describes that shard while others are missing."""
    content = {"format": FORMAT, "settings": vars(settings), "features": settings.features}
    content["shards"] = list(map(vars, shards))
    return (json.dumps(content, indent=1, sort_keys=True) + "\n").encode()


def from_json(path: str, name: str, data: bytes) -> Manifest:
    """Read what `to_json` wrote to a file of the folder ``path``.

    Raises `CourseError`: It was changed, or is of another version.
    """
    fix = "If you changed it, bring it back; else write the records again, to another folder."
    with unreadable(f"{name} can't be understood.", fix):
        content = json.loads(data)
        if content["format"] != FORMAT:
            raise ValueError(f"format {content['format']}, not {FORMAT}")
        table = Manifest(
            path,
            Settings(**content["settings"]),
            tuple(Shard(**shard) for shard in content["shards"]),
        )
        for made in (table.settings, *table.shards):
            for field in dataclasses.fields(made):
                if type(value := getattr(made, field.name)) is not field.type:
                    raise TypeError(f"{field.name} is {value!r}")
        # The names are opened, and the rows counted on: they follow from the rest.
        names = [name.replace(".json", ".tfrecord")] if name != MANIFEST else table.settings.names
        if [shard.name for shard in table.shards] != names:
            raise ValueError("the shards are not those of the settings")
        row = np.zeros([1, table.settings.sequence_length], np.int64)
        each = len(records(dict.fromkeys(table.features, row), table.features))
        for shard in table.shards:
            if type(shard.rows) is not int or shard.rows < 0 or shard.bytes != shard.rows * each:
                raise ValueError(f"{shard.rows} rows of {shard.name} are not {shard.bytes} bytes")
        return table


def check_same(table: Manifest, wanted: Settings) -> None:
    """Refuse to mix records of different settings in one folder.

    Raises `CourseError`: They differ.
    """
    was, now = vars(table.settings), vars(wanted)
    other = [key for key in was if was[key] != now[key]]
    if other:
        what = "another tokenizer" if "tokenizer_sha256" in other else "other settings or texts"
        raise CourseError(
            f"{short(table.path)} holds records of {what}.",
            f"{'; '.join(f'{key} is {was[key]} there, {now[key]} here' for key in other)}.",
            "Write to another folder, or delete the records here: manifest.json and shard-*.",
        )


def manifest(path: str | os.PathLike[str]) -> Manifest:
    """Say what a folder of records, here or ``gs://bucket/folder``, holds.

    Raises `CourseError`: There are no finished records, or as `from_json`.
    """
    path = os.fspath(path)
    data = Folder(path).read(MANIFEST)
    if data is None:
        raise CourseError(
            f"{short(path)} holds no finished records.",
            f"There is no {MANIFEST}: the folder is another one, or not all shards are written.",
            "Check the path, or run the command that writes them again: it goes on where it "
            "stopped.",
        )
    return from_json(path, MANIFEST, data)


def tokenizer_of(table: Manifest) -> tokenizers.Tokenizer:
    """Read the tokenizer that records were made with, which lies beside them.

    Raises `CourseError`: Another one lies there, or none.
    """
    data, known = Folder(table.path).read(TOKENIZER), table.settings
    if data and hashlib.sha256(data).hexdigest() == known.tokenizer_sha256:
        tokenizer = tokenizers.Tokenizer.from_str(data.decode())
        if tokenizer.get_vocab_size() == known.vocabulary:
            return tokenizer
    raise CourseError(
        f"{short(table.path)} has not the tokenizer that its records were made with.",
        f"Its {TOKENIZER} was exchanged, deleted or not copied, or the {MANIFEST} was changed.",
        "Copy it again, or run the command that wrote the records: it writes what is missing.",
    )


def verify(path: str | os.PathLike[str]) -> Manifest:
    """Compare every shard's bytes with the manifest; raise `ShardDamaged`, or as `manifest`."""
    table = manifest(path)
    for shard in table.shards:
        shard.check(Folder(table.path).pieces(shard.name))
    return table


def steps_per_epoch(table: Manifest, global_batch_size: int) -> int:
    """Give the number of whole batches; without one, raise a `CourseError`."""
    if table.rows < global_batch_size:
        raise CourseError(
            f"{table.rows:,} rows: fewer than one batch of {global_batch_size:,}.",
            "An epoch would have no step, for ever.",
            "Take a smaller batch, or more text.",
        )
    return table.rows // global_batch_size


def _field(number: int, content: bytes) -> bytes:
    """Write a field of a protobuf message: a string or a message (protobuf.dev, "Encoding")."""
    size, length = len(content), b""
    while size > 127:
        size, length = size >> 7, length + bytes([size & 127 | 128])
    return bytes([number << 3 | 2]) + length + bytes([size]) + content


def _crc(data: bytes) -> bytes:
    """TFRecord's checksum: CRC-32C, rotated and shifted (TensorFlow's lib/hash/crc32c.h)."""
    crc = google_crc32c.value(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def records(rows: Mapping[str, np.ndarray], types: Mapping[str, str]) -> bytes:
    """Write rows, whole numbers [rows, sequence_length] by feature, as records of a TFRecord file.

    A record is the length of a ``tf.train.Example``, a checksum of that, the example, and its
    checksum. The example has one byte string for each feature, all equally long. It is written
    without TensorFlow, whose import takes seconds.
    """
    numbers = [
        values.astype(np.dtype(types[name]).newbyteorder("<")) for name, values in rows.items()
    ]
    parts = []
    for row in zip(*numbers, strict=True):
        features = b"".join(  # Example.features.feature is a map: entries of a key and a value
            _field(1, _field(1, name.encode()) + _field(2, _field(1, _field(1, values.tobytes()))))
            for name, values in zip(rows, row, strict=True)
        )
        data = _field(1, features)
        length = struct.pack("<Q", len(data))
        parts += (length, _crc(length), data, _crc(data))
    return b"".join(parts)
