"""Writing a folder of records: what is there is kept, what is missing is written."""

import hashlib
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from helpers.base.errors import CourseError
from helpers.base.folders import Folder
from helpers.text.records.encoder import Encoder, canonical
from helpers.text.records.format import (
    MANIFEST,
    TOKENIZER,
    Manifest,
    Settings,
    Shard,
    check_same,
    description,
    from_json,
    shard_names,
    shuffled,
    to_json,
)
from helpers.text.records.shards import ShardWriter, chunks, text_crc32c
from helpers.text.records.workers import write_in_parallel


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
    """Write documents as packed rows; continue where an earlier run of the same stopped.

    The bytes depend on documents, tokenizer, ``sequence_length``, ``shards``, ``seed`` and
    ``pairs`` alone.

    Args:
        documents: The texts; a list, or anything with ``len`` and ``[number]``.
        output: Folder here or ``gs://bucket/folder``.
        tokenizer: A ``BertTokenizerFast``, a ``tokenizers`` tokenizer, or a ``tokenizer.json``.
        sequence_length: Positions per row. Longer documents become several sequences.
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
        OtherTokenizer, OtherSettings: The folder holds other records.
        ShardDamaged: What an earlier run wrote was changed since.
        files.CantWrite: The disk is full, or nothing can be written there.
        CourseError: A document, a number or the tokenizer can't be used, or the folder holds
            records of other documents.
    """
    output = os.fspath(output)
    _check_numbers(len(documents), sequence_length, shards, part, pairs)
    encode = Encoder(tokenizer)
    tokenizer_json = canonical(encode.backend)
    settings = Settings(
        tokenizer_sha256=hashlib.sha256(tokenizer_json).hexdigest(),
        vocabulary=encode.vocabulary,
        sequence_length=sequence_length,
        shards=shards,
        seed=seed,
        documents=len(documents),
        pairs=pairs,
    )
    folder = Folder(output)
    finished = _finished(folder, settings)
    if not folder.exists(TOKENIZER):
        folder.write(TOKENIZER, tokenizer_json)
    missing = []
    for name, numbers in _plan(settings, part):
        if name in finished and _kept(documents, numbers, finished[name], folder):
            done(len(numbers))
        else:
            missing.append((name, numbers))
    if workers > 1 and len(missing) > 1:
        text = tokenizer_json.decode()
        write_in_parallel(documents, missing, settings, output, text, workers, done)
    else:
        writer = ShardWriter(settings, encode, folder)
        for name, numbers in missing:
            writer(chunks(documents, numbers), name, done)
    return _join(folder, settings)


def _plan(settings: Settings, part: tuple[int, int]) -> list[tuple[str, list[int]]]:
    """Give the shards of one part, each with the numbers of its documents."""
    number, parts = part
    order = shuffled(settings.documents, settings.seed)
    names = list(enumerate(shard_names(settings.shards)))[number - 1 :: parts]
    return [(name, np.sort(order[at :: settings.shards]).tolist()) for at, name in names]


def _kept(documents: Sequence[str], numbers: list[int], shard: Shard, folder: Folder) -> bool:
    """Tell whether a finished shard is there, whole and of these documents."""
    data = folder.read(shard.name)
    if data is None:
        return False
    shard.check(data)
    crc = 0
    for _, texts in chunks(documents, numbers):
        crc = text_crc32c(texts, crc)
    if f"{crc:08x}" != shard.text_crc32c:
        raise CourseError(
            f"{shard.name} was made of other documents.",
            "As many documents, the same settings, but the text differs.",
            "Write to another folder, or delete this one.",
        )
    return True


def _join(folder: Folder, settings: Settings) -> Manifest:
    """Collect the finished shards of all parts; with the last one, write the manifest."""
    made = Manifest(folder.path, settings, tuple(_finished(folder, settings).values()))
    if made.complete:
        shards = [vars(shard) for shard in made.shards]
        folder.write(MANIFEST, to_json(settings, shards=shards))
    return made


def _finished(folder: Folder, settings: Settings) -> dict[str, Shard]:
    """Read the descriptions that are there, of any part; refuse those of other settings."""
    if (data := folder.read(MANIFEST)) is not None:
        check_same(folder.path, from_json(MANIFEST, data)[0], settings)
    finished = {}
    for name in shard_names(settings.shards):
        if (data := folder.read(description(name))) is not None:
            found, (shard,) = from_json(description(name), data)
            check_same(folder.path, found, settings)
            finished[name] = shard
    return finished


def _check_numbers(
    documents: int, sequence_length: int, shards: int, part: tuple[int, int], pairs: bool
) -> None:
    if documents == 0:
        raise CourseError(
            "There are no documents.",
            "Nothing was left of the input, or the list is empty.",
            "Check what you pass; corpus.documents gives those of which something is left.",
        )
    if sequence_length < (least := 7 if pairs else 3):
        raise CourseError(
            f"sequence_length is {sequence_length}.",
            "[CLS] and two [SEP] take three positions of each pair; each half needs two."
            if pairs
            else "[CLS] and [SEP] take two positions of each sequence, so no token would fit.",
            f"Take 128, or at least {least}.",
        )
    if not 1 <= shards <= documents:
        raise CourseError(
            f"{shards} shards for {documents:,} documents.",
            "Each shard needs at least one document, and there must be at least one shard.",
            f"Ask for between 1 and {documents:,} shards.",
        )
    number, parts = part
    if not 1 <= number <= parts <= shards:
        raise CourseError(
            f"Part {number} of {parts}, with {shards} shards.",
            "Parts count from 1, and each must have at least one shard.",
            f"Ask for part 1 to {min(max(parts, 1), shards)} of at most {shards}, or more shards.",
        )
