"""Writing records: a shard is a pure function, which a loop calls, a process pool, or Beam."""

import collections
import dataclasses
import hashlib
import itertools
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import google_crc32c
import numpy as np
import tokenizers

from helpers.base.errors import CourseError, unreadable
from helpers.base.folders import Folder, short
from helpers.text import buckets, corpus
from helpers.text.documents import InMemory, Source
from helpers.text.records import format
from helpers.text.records.format import HELD_OUT, MANIFEST, TOKENIZER, Manifest, Settings

CHUNK = 1_000  # documents that are tokenized together
WINDOW = 2**20  # tokens whose sequences are packed together: a bound for memory


@dataclasses.dataclass(frozen=True)
class Job:
    """A folder of records to write."""

    path: str  # here or ``gs://``
    source: Source  # what to read
    settings: Settings
    tokenizer: str  # as JSON
    versions: list[str]  # the state of each file of the source


def write_shard(job: Job, number: int) -> int:
    """Write one shard, then its description: then it is finished. Gives 1, to be added up."""
    if (
        job.source.versions() != job.versions
    ):  # changed after it was named, before this process read it
        raise CourseError(
            "The text was changed meanwhile.",
            "Records of the old text and of the new one would be mixed.",
            "Run the same command again when nobody changes it, with another folder for output.",
        )
    settings, folder, name = job.settings, Folder(job.path), job.settings.names[number]
    tokenizer = tokenizers.Tokenizer.from_str(job.tokenizer)
    tokenizer.enable_truncation(settings.sequence_length)
    counts, crc = collections.Counter(), google_crc32c.Checksum()

    def pieces() -> Iterator[bytes]:
        texts = job.source.shard(settings.part, number, settings.shards, settings.seed)
        for window in _windows(texts, tokenizer, counts):
            packing = buckets.pack(list(map(len, window)), settings.sequence_length)
            pad = tokenizer.token_to_id("[PAD]")
            features = {
                "input_ids": packing.lay_out(np.concatenate(window), pad),
                "attention_mask": packing.segment_ids(),
                "position_ids": packing.position_ids(),
            }
            data = format.records(features, settings.features)
            counts["rows"] += len(packing.splits) - 1
            counts["tokens"] += packing.tokens
            counts["bytes"] += len(data)
            crc.update(data)
            yield data

    if there := folder.exists(name):  # a run that was killed wrote it, or it is somebody's own
        collections.deque(pieces(), maxlen=0)
    else:
        folder.write(name, pieces())
    numbers = {key: counts[key] for key in ("documents", "rows", "tokens", "bytes")}
    shard = format.Shard(name, **numbers, crc32c=crc.hexdigest().decode())
    if there:
        try:
            shard.check(folder.pieces(name))
        except format.ShardDamaged:
            raise _somebodys(job, name, "Its bytes aren't those of these records.") from None
    folder.write(name.replace(".tfrecord", ".json"), format.to_json(settings, [shard]))
    return 1


def _windows(
    texts: Iterator[str], tokenizer: tokenizers.Tokenizer, counts: collections.Counter
) -> Iterator[list[np.ndarray]]:
    """Give sequences ``[CLS] … [SEP]``, as many as are packed together.

    Of a document that is longer than a row, the tokenizer's overflowing parts are sequences, too.
    """
    window, size = [], 0
    while chunk := list(itertools.islice(texts, CHUNK)):
        for document in tokenizer.encode_batch_fast(chunk):
            if len(document) > 2:  # more than [CLS] and [SEP]
                counts["documents"] += 1
                for part in (document, *document.overflowing):
                    window.append(np.array(part.ids, np.int32))
                    size += len(part)
        if size >= WINDOW:
            yield window
            window, size = [], 0
    if window:
        yield window


# A runner gives numbers of shards that are done, as they are; `course.runners` has two more.

Task = tuple[Job, int]


def one_by_one(tasks: Sequence[Task]) -> Iterator[int]:
    """Write shards in this process."""
    return itertools.starmap(write_shard, tasks)


def write(
    source: Source | Sequence[str],
    output: str | os.PathLike[str],
    tokenizer: Any,
    *,
    sequence_length: int = 128,
    shards: int = 8,
    seed: int = 0,
    held_out: bool = False,
    run: Callable[[Sequence[Task]], Iterable[int]] = one_by_one,
    done: Callable[[int, int], None] = lambda shards, of: None,
) -> Manifest:
    """Write documents as packed rows, and their manifest; go on where an earlier run stopped.

    The bytes depend on documents, tokenizer, ``sequence_length``, ``shards`` and ``seed`` alone.

    Args:
        source: The documents, or where they are: they are cleaned, and empty ones left out.
        output: Folder here or ``gs://bucket/folder``.
        tokenizer: As `corpus.canonical` takes it.
        sequence_length: Positions per row. Longer documents become several sequences.
        shards: Number of files. For training, some 100 MB each, and several per reading machine.
        seed: Distributes documents over the shards.
        held_out: Write the last of each ten documents to the folder ``held-out``, in a tenth of the
            shards, and the others to ``output``.
        run: `one_by_one`, or a runner of `course.runners` with its options.
        done: Called with the number of shards just written and of those to write in all.

    Raises:
        ShardDamaged: A finished shard's bytes are others.
        CourseError: The folder holds other records or files; a file, the tokenizer or the folder
            can't be used; or there is no document.
        ValueError: A number is out of its range.
    """
    if not isinstance(source, Source):
        source = InMemory((source,))
    text, folder = corpus.canonical(tokenizer), Folder(output)
    known = tokenizers.Tokenizer.from_str(text)
    settings = Settings(
        documents=source.digest(),
        part="train" if held_out else "all",
        tokenizer_sha256=hashlib.sha256(text.encode()).hexdigest(),
        vocabulary=known.get_vocab_size(),
        sequence_length=sequence_length,
        shards=shards,
        seed=seed,
    )
    some = source.shard(settings.part, number=0, shards=1, seed=0)
    ids = [x for y in known.encode_batch_fast([*itertools.islice(some, CHUNK)]) for x in y.ids]
    if 2 * ids.count(known.token_to_id("[UNK]")) > len(ids):
        raise CourseError(
            "The tokenizer doesn't know this text.",
            f"Of its first {CHUNK:,} documents more than half of the tokens are [UNK].",
            "Train one on this text (corpus.train_tokenizer), or read another text.",
        )
    jobs = [Job(folder.path, source, settings, text, source.versions())]
    if held_out:
        fewer = dataclasses.replace(settings, part=HELD_OUT, shards=max(1, shards // 10))
        jobs.append(dataclasses.replace(jobs[0], path=folder.at(HELD_OUT), settings=fewer))
    # Two runs of equal settings write the same bytes to a bucket, each object whole.
    with folder.alone():
        tasks = [(job, number) for job in jobs for number in _missing(job)]
        for number in run(tasks) if tasks else ():
            done(number, len(tasks))
        written, *apart = [_finish(job) for job in jobs]
        for empty in (made for made in (*apart, written) if not made.documents):
            _delete(empty)
    if not written.documents:
        raise CourseError(
            "There are no documents.",
            "The text has nothing but blank lines, or the tokenizer knows none of its characters.",
            "Look at what you read: a wrong path is common.",
        )
    return written


def _delete(table: Manifest) -> None:
    """Delete records; what else is in the folder is somebody's own."""
    folder, names = Folder(table.path), table.settings.names
    about = (x.replace(".tfrecord", ".json") for x in names)
    for name in (".lock", MANIFEST, TOKENIZER, *names, *about):
        folder.delete(name)
    if not folder.list():
        folder.delete("")


def _finished(job: Job) -> dict[str, format.Shard]:
    """Give the shards that are there and described, by name; errors as of `write`."""
    folder, finished = Folder(job.path), {}
    there = folder.sizes()
    for name in there:
        if name == MANIFEST or re.fullmatch(r"shard-.*\.json", name):
            table = format.from_json(folder.path, name, folder.read(name))
            format.check_same(table, job.settings)
            if name != MANIFEST and table.shards[0].name in there:
                finished[table.shards[0].name] = table.shards[0]
    return finished


def _missing(job: Job) -> list[int]:
    """Give the numbers of the shards to write; errors as of `write`."""
    folder, finished = Folder(job.path), _finished(job)
    if folder.read(TOKENIZER) not in (None, job.tokenizer.encode()):
        raise _somebodys(job, TOKENIZER, "It isn't that of these records.")
    for name, shard in finished.items():
        shard.check(Folder(job.path).pieces(name))
    return [number for number, name in enumerate(job.settings.names) if name not in finished]


def _somebodys(job: Job, name: str, why: str) -> CourseError:
    """Make the error of a file whose place is that of another, and which isn't known there."""
    return CourseError(
        f"{short(job.path)} holds a {name} of somebody else.",
        f"{why} It may be your own, or of a run with other settings.",
        "Name another folder, or move the file away; then run the same command again.",
    )


def _finish(job: Job) -> Manifest:
    """Collect a folder's shards, which are all there, and write its manifest."""
    folder, finished = Folder(job.path), _finished(job)
    with unreadable(f"A shard of {short(job.path)} is gone.", "Run the same command again."):
        shards = tuple(finished[name] for name in job.settings.names)
    folder.write(TOKENIZER, job.tokenizer)
    folder.write(MANIFEST, format.to_json(job.settings, shards))
    return Manifest(job.path, job.settings, shards)
