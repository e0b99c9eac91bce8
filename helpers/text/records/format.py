"""What a folder of records holds: its settings, its shards, and what a record is."""

import dataclasses
import hashlib
import json
import os
import struct
from collections.abc import Iterable, Mapping, Sequence

import google_crc32c
import numpy as np
import tokenizers

from helpers.base.errors import CourseError, unreadable
from helpers.base.folders import Folder, short
from helpers.base.language import translated

# Another number when a manifest or a record's bytes get another meaning: older ones are refused.
FORMAT = 4
MANIFEST = "manifest.json"  # written last: all shards are there
TOKENIZER = "tokenizer.json"
HELD_OUT = "held-out"  # the folder, in that of a training's records, of what was held out of them


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
        # The smallest that holds them: records are read far more often than written.
        token = "uint16"
        if self.vocabulary > 2**16:
            token = "int32"
        position = "uint8"
        if self.sequence_length > 2**8:
            position = "uint16"
        return {"input_ids": token, "attention_mask": position, "position_ids": position}


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
        # In pieces: a shard may be larger than the memory.
        size = 0
        checksum = google_crc32c.Checksum()
        for piece in pieces:
            size += len(piece)
            checksum.update(piece)
        # The size first: what was cut off has a wrong checksum, too, which would say less.
        self.check_size(size)
        crc = checksum.hexdigest().decode()
        if crc != self.crc32c:
            raise self._damaged(f"Its checksum is {crc}; {self.crc32c} was written.")

    def _damaged(self, why: str) -> ShardDamaged:
        fix = "Delete it and prepare the records again: only this shard is written again."
        return ShardDamaged(f"{self.name} is damaged.", why, fix)


@dataclasses.dataclass(frozen=True)
class Manifest:
    """What a folder of records holds."""

    path: str  # the folder, local or ``gs://``
    settings: Settings  # what the bytes depend on
    shards: tuple[Shard, ...]  # in order

    @property
    def documents(self) -> int:
        """Documents in all shards."""
        return sum(shard.documents for shard in self.shards)

    @property
    def rows(self) -> int:
        """Records in all shards, each of ``sequence_length`` positions."""
        return sum(shard.rows for shard in self.shards)

    @property
    def tokens(self) -> int:
        """Positions that hold a token, the special ones included."""
        return sum(shard.tokens for shard in self.shards)

    @property
    def bytes(self) -> int:
        """Size of all shards."""
        return sum(shard.bytes for shard in self.shards)

    @property
    def features(self) -> dict[str, str]:
        """Type of each feature's numbers: ``sequence_length`` of them, little-endian, as bytes."""
        return self.settings.features

    @property
    def fingerprint(self) -> dict[str, str | int]:
        """Say what a training's numbers depend on: what is in the records, not where they are."""
        # Checksums, not settings: another version of the tokenizer's library may write other rows.
        content = [(shard.name, shard.rows, shard.crc32c) for shard in self.shards]
        return {
            "rows": self.rows,
            "sequence_length": self.settings.sequence_length,
            "tokenizer": self.settings.tokenizer_sha256,
            "content": hashlib.sha256(json.dumps(content).encode()).hexdigest(),
        }

    def __repr__(self) -> str:
        # An empty text gives records without a row.
        positions = max(1, self.rows * self.settings.sequence_length)
        return translated(
            f"{self.documents:,} documents in {self.rows:,} rows of "
            f"{self.settings.sequence_length}, {self.tokens / positions:.1%} tokens; "
            f"{len(self.shards):,} shards, {self.bytes / 1e6:.1f} MB"
        )


def to_json(settings: Settings, shards: Iterable[Shard]) -> bytes:
    """Write a manifest; one with a single shard describes that shard while others are missing."""
    content = {
        "format": FORMAT,
        "settings": vars(settings),
        "features": settings.features,
        "shards": [vars(shard) for shard in shards],
    }
    # Sorted: the same records have the same manifest, byte for byte.
    text = json.dumps(content, indent=1, sort_keys=True) + "\n"
    return text.encode()


def from_json(path: str, name: str, data: bytes) -> Manifest:
    """Read what `to_json` wrote to a file of the folder ``path``.

    Raises `CourseError`: It was changed, or is of another version.
    """
    fix = "If you changed it, bring it back; else write the records again, to another folder."
    with unreadable(f"{name} can't be understood.", fix):
        # Whatever is in the file must not be believed: its names are opened, its numbers are sizes.
        content = json.loads(data)
        if content["format"] != FORMAT:
            raise ValueError(f"format {content['format']}, not {FORMAT}")
        settings = Settings(**content["settings"])
        shards = tuple(Shard(**shard) for shard in content["shards"])
        for part in (settings, *shards):
            _check_types(part)
        _check_names(name, settings, shards)
        _check_row_counts(settings, shards)
        return Manifest(path, settings, shards)


def _check_types(part: Settings | Shard) -> None:
    for field in dataclasses.fields(part):
        value = getattr(part, field.name)
        # Not `isinstance`, for which True is a whole number.
        if type(value) is not field.type:
            raise TypeError(f"{field.name} is {value!r}")


def _check_names(file: str, settings: Settings, shards: Sequence[Shard]) -> None:
    """Check the names of the shards, which will be opened: they follow from the settings."""
    expected = settings.names
    if file != MANIFEST:
        expected = [file.replace(".json", ".tfrecord")]
    if [shard.name for shard in shards] != expected:
        raise ValueError("the shards are not those of the settings")


def _check_row_counts(settings: Settings, shards: Sequence[Shard]) -> None:
    """Check the numbers of rows, which will be counted on: they follow from the sizes."""
    # All records are equally long, whatever is in them: one shows the length of each.
    row = np.zeros([1, settings.sequence_length], np.int64)
    record = records(dict.fromkeys(settings.features, row), settings.features)
    for shard in shards:
        if shard.rows < 0 or shard.bytes != shard.rows * len(record):
            raise ValueError(f"{shard.rows} rows of {shard.name} are not {shard.bytes} bytes")


def check_same(table: Manifest, settings: Settings) -> None:
    """Refuse to mix records of different settings in one folder.

    Raises `CourseError`: They differ.
    """
    differences = []
    for name, written in vars(table.settings).items():
        asked_for = getattr(settings, name)
        if written != asked_for:
            differences.append(f"{name} is {written} in the folder, {asked_for} in this run")
    if not differences:
        return
    what = "other settings or texts"
    if table.settings.tokenizer_sha256 != settings.tokenizer_sha256:
        what = "another tokenizer"
    raise CourseError(
        f"{short(table.path)} holds records of {what}.",
        f"{'; '.join(differences)}.",
        "Write to another folder, or delete the records in this one: manifest.json and shard-*.",
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
            "Check the path, or run the command that writes them again: it continues "
            "where it stopped.",
        )
    return from_json(path, MANIFEST, data)


def tokenizer_of(table: Manifest) -> tokenizers.Tokenizer:
    """Read the tokenizer that records were made with, which is in their folder.

    Raises `CourseError`: Another one is there, or none.
    """
    data = Folder(table.path).read(TOKENIZER)
    if data and hashlib.sha256(data).hexdigest() == table.settings.tokenizer_sha256:
        # The hash shows that the file is as written, not that the manifest's own numbers are.
        tokenizer = tokenizers.Tokenizer.from_str(data.decode())
        if tokenizer.get_vocab_size() == table.settings.vocabulary:
            return tokenizer
    raise CourseError(
        f"{short(table.path)} does not have the tokenizer that its records were made with.",
        f"Its {TOKENIZER} was replaced, deleted or not copied, or the {MANIFEST} was changed.",
        "Copy it again, or run the command that wrote the records: it writes what is missing.",
    )


def verify(path: str | os.PathLike[str]) -> Manifest:
    """Compare the tokenizer and every shard, to the last byte, with the manifest.

    The manifest has no checksum of its own: its numbers are checked where they follow from others
    (`from_json`), and its counts of documents and tokens are not.

    Raises:
        ShardDamaged: A shard is missing, or has other bytes.
        CourseError: As `manifest` and `tokenizer_of`.
    """
    table = manifest(path)
    tokenizer_of(table)
    folder = Folder(table.path)
    sizes = folder.sizes()
    for shard in table.shards:
        shard.check_size(sizes.get(shard.name, 0))  # before gigabytes are read
        shard.check(folder.pieces(shard.name))
    return table


def steps_per_epoch(table: Manifest, global_batch_size: int) -> int:
    """Give the number of whole batches; without one, raise a `CourseError`."""
    if table.rows < global_batch_size:
        raise CourseError(
            f"{table.rows:,} rows: fewer than one batch of {global_batch_size:,}.",
            "An epoch would never have a step.",
            "Take a smaller batch, or more text.",
        )
    return table.rows // global_batch_size


# Kinds of fields in a protobuf message: a string and a message are both "length-delimited".
LENGTH_DELIMITED = 2


def _field(number: int, content: bytes) -> bytes:
    """Write a field of a protobuf message: a string or a message (protobuf.dev, "Encoding")."""
    tag = bytes([number << 3 | LENGTH_DELIMITED])
    return tag + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    """Write a whole number in groups of seven bits, the lowest first; a high bit says "more"."""
    groups = bytearray()
    while number > 127:
        groups.append(number & 127 | 128)
        number >>= 7
    groups.append(number)
    return bytes(groups)


def _crc(data: bytes) -> bytes:
    """TFRecord's checksum: CRC-32C, rotated and shifted (TensorFlow's lib/hash/crc32c.h)."""
    crc = google_crc32c.value(data)
    # A checksum of data that itself holds checksums would be a weak one: so they are disguised.
    rotated = crc >> 15 | crc << 17
    masked = (rotated + 0xA282EAD8) & 0xFFFFFFFF
    return struct.pack("<I", masked)


def _example(row: Mapping[str, np.ndarray]) -> bytes:
    """Write a ``tf.train.Example`` with one byte string for each feature."""
    entries = []
    for name, values in row.items():
        bytes_list = _field(1, values.tobytes())
        feature = _field(1, bytes_list)  # Feature.bytes_list
        # Example.features.feature is a map: entries of a key and a value.
        entry = _field(1, name.encode()) + _field(2, feature)
        entries.append(_field(1, entry))
    return _field(1, b"".join(entries))


def records(rows: Mapping[str, np.ndarray], types: Mapping[str, str]) -> bytes:
    """Write rows, whole numbers [rows, sequence_length] by feature, as records of a TFRecord file.

    A record is the length of a ``tf.train.Example``, a checksum of that, the example, and its
    checksum. The example has one byte string for each feature, all equally long. It is written
    without TensorFlow, whose import takes seconds.
    """
    columns = {}
    for name, values in rows.items():
        little_endian = np.dtype(types[name]).newbyteorder("<")
        columns[name] = values.astype(little_endian)
    parts = []
    for values_of_row in zip(*columns.values(), strict=True):
        row = dict(zip(columns, values_of_row, strict=True))
        data = _example(row)
        # The length has its own checksum: a reader must not skip by a wrong one.
        length = struct.pack("<Q", len(data))
        parts += (length, _crc(length), data, _crc(data))
    return b"".join(parts)
