"""What a folder of records holds, and whether it is whole. Imports no TensorFlow."""

import os

import tokenizers

from helpers.base.errors import CourseError
from helpers.base.folders import Folder, short
from helpers.text.records.format import MANIFEST, TOKENIZER, Manifest, check_tokenizer, from_json


def manifest(path: str | os.PathLike[str]) -> Manifest:
    """Say what a folder of records, here or ``gs://bucket/folder``, holds.

    Raises:
        CourseError: There are no records, not all shards are written, or the manifest was changed
            by hand or is of another version.
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
    return Manifest(path, *from_json(MANIFEST, data))


def tokenizer_of(table: Manifest) -> tokenizers.Tokenizer:
    """Read the tokenizer that records were made with, which lies beside them.

    Raises:
        OtherTokenizer: Another one lies there.
        CourseError: There is none.
    """
    data = Folder(table.path).read(TOKENIZER)
    if data is None:
        raise CourseError(
            f"{short(table.path)} has no {TOKENIZER}.",
            "It lies beside the records when they are written; it was deleted or not copied.",
            "Copy it again, or run the command that writes the records.",
        )
    check_tokenizer(table.path, data, table.settings)
    return tokenizers.Tokenizer.from_str(data.decode())


def verify(path: str | os.PathLike[str]) -> Manifest:
    """Read every shard and compare its bytes with the manifest.

    Raises:
        ShardDamaged: A shard has other bytes.
        CourseError: As `manifest`, or a shard isn't there.
    """
    table = manifest(path)
    check_sizes(table)
    for shard in table.shards:
        shard.check(Folder(table.path).pieces(shard.name))
    return table


def check_sizes(table: Manifest) -> None:
    """Look, with one question to the folder, whether each shard is there and as large as it was.

    Raises:
        ShardDamaged, CourseError: One is not.
    """
    sizes = Folder(table.path).sizes()
    for shard in table.shards:
        if shard.name not in sizes:
            raise CourseError(
                f"{shard.name} isn't there.",
                "The manifest names it; it was deleted, or not copied with the others.",
                "Copy it again, or run the command that writes the records: it writes what is "
                "missing.",
            )
        shard.check_size(sizes[shard.name])


def steps_per_epoch(table: Manifest, global_batch_size: int) -> int:
    """Give the number of whole batches; without one, raise a `CourseError`."""
    if table.rows < global_batch_size:
        raise CourseError(
            f"{table.rows:,} rows: fewer than one batch of {global_batch_size:,}.",
            "An epoch would have no step, for ever.",
            "Take a smaller batch, or more text.",
        )
    return table.rows // global_batch_size
