"""Writing a folder of records: what is there is kept, what is missing is written."""

import hashlib
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from helpers.base.errors import CourseError
from helpers.base.folders import Folder
from helpers.text.records.encoder import Encoder, canonical, check_tokenizer
from helpers.text.records.format import (
    LONGEST_ROW,
    MANIFEST,
    TOKENIZER,
    Manifest,
    Settings,
    Shard,
    check_same,
    from_json,
    is_description,
    shard_names,
    shuffled,
    some,
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
    check_options(sequence_length, shards, part, seed, pairs)
    if len(documents) < shards:
        raise _too_few(len(documents), shards)
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
    if (there := folder.read(TOKENIZER)) is None:
        folder.write(TOKENIZER, tokenizer_json)
    else:
        check_tokenizer(there, settings, folder.path)
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
    if not _of_documents(shard, documents, numbers):
        raise CourseError(
            f"{shard.name} was made of other documents.",
            "As many documents, the same settings, but the text differs.",
            "Write to another folder, or delete this one.",
        )
    return True


def _of_documents(shard: Shard, documents: Sequence[str], numbers: list[int]) -> bool:
    crc = 0
    for _, texts in chunks(documents, numbers):
        crc = text_crc32c(texts, crc)
    return f"{crc:08x}" == shard.text_crc32c


def made_of(table: Manifest, documents: Sequence[str]) -> bool:
    """Tell whether records, all of them written, were made of these very documents."""
    plan = _plan(table.settings, (1, 1))
    return table.settings.documents == len(documents) and all(
        _of_documents(shard, documents, numbers)
        for shard, (_, numbers) in zip(table.shards, plan, strict=True)
    )


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
    # Also those of another number of shards: with other names they would never be completed.
    for name in filter(is_description, folder.list()):
        if (data := folder.read(name)) is not None:
            found, (shard,) = from_json(name, data)
            check_same(folder.path, found, settings)
            finished[shard.name] = shard
    return finished


def _too_few(documents: int, shards: int) -> CourseError:
    if documents == 0:
        return CourseError(
            "There are no documents.",
            "Nothing was left of the input, or the list is empty.",
            "Check what you pass; corpus.documents gives those of which something is left.",
        )
    return CourseError(
        f"{shards:,} shards for {some(documents, 'document')}.",
        "Each shard needs at least one document.",
        "Ask for 1 shard." if documents == 1 else f"Ask for 1 to {documents:,} shards.",
    )


def check_options(
    sequence_length: int, shards: int, part: tuple[int, int], seed: int, pairs: bool
) -> None:
    """Refuse numbers that `write` can't use, whatever the documents are.

    Raises:
        CourseError: A number is out of its range.
    """
    least = 7 if pairs else 3
    if not least <= sequence_length <= LONGEST_ROW:
        short = (
            "[CLS] and two [SEP] take three positions of each pair; each half needs two."
            if pairs
            else "[CLS] and [SEP] take two positions of each sequence, so no token would fit."
        )
        raise CourseError(
            f"sequence_length is {sequence_length:,}.",
            short if sequence_length < least else "Positions are stored as 16-bit numbers.",
            f"Take 128, or from {least} to {LONGEST_ROW:,}.",
        )
    if not 1 <= shards < 100_000:
        raise CourseError(
            f"shards is {shards:,}.",
            "It is the number of files, and their names have five digits for it.",
            "Ask for 1 to 99,999; for much text so many that each has some 100 MB.",
        )
    number, parts = part
    if not 1 <= number <= parts <= shards:
        raise CourseError(
            f"Part {number} of {parts}, with {some(shards, 'shard')}.",
            "Parts count from 1, and each must have at least one shard.",
            f"Ask for part 1 to {min(max(parts, 1), shards)} of at most {shards}, or more shards.",
        )
    if not 0 <= seed < 2**32:
        raise CourseError(
            f"seed is {seed:,}.",
            "The order is drawn from 32 bits of it.",
            "Take a whole number from 0 to 4,294,967,295.",
        )
