"""Writing records: a shard is a pure function, which a loop calls, a process pool, or Beam."""

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
from helpers.text.records.format import HELD_OUT, MANIFEST, TOKENIZER, Manifest, Settings, Shard

# Bounds for memory. WINDOW is looked at after each chunk, so both decide about the rows.
CHUNK = 1_000  # documents
CHUNK_CHARACTERS = 2**22  # of which ordinary documents don't have as many in a chunk
BATCH_CHARACTERS = 2**19  # that are tokenized together: a hundred bytes for each
WINDOW = 2**20  # tokens whose sequences are packed together


@dataclasses.dataclass(frozen=True)
class Job:
    """A folder of records to write."""

    path: str  # here or ``gs://``
    source: Source  # what to read
    settings: Settings
    tokenizer: str  # as JSON
    versions: list[str]  # the state of each file of the source


class ShardWriter:
    """Turns documents into the bytes of a shard, and counts what it gave.

    Attributes:
        documents: Documents that were tokenized.
        rows: Records.
        tokens: Positions that hold a token, the special ones included.
        bytes: Their size.
        crc: Checksum of all bytes.
    """

    def __init__(self, settings: Settings, tokenizer: str) -> None:
        self.documents = 0
        self.rows = 0
        self.tokens = 0
        self.bytes = 0
        self.crc = google_crc32c.Checksum()
        self._settings = settings
        self._tokenizer = tokenizers.Tokenizer.from_str(tokenizer)
        self._tokenizer.enable_truncation(settings.sequence_length)
        self._pad = self._tokenizer.token_to_id("[PAD]")

    def pieces(self, texts: Iterator[str]) -> Iterator[bytes]:
        """Give the shard's bytes, some at a time, and count them."""
        for sequences in self._windows(texts):
            yield self._records(sequences)

    def shard(self, name: str) -> Shard:
        """Describe the file of all pieces so far."""
        return Shard(
            name=name,
            documents=self.documents,
            rows=self.rows,
            tokens=self.tokens,
            bytes=self.bytes,
            crc32c=self.crc.hexdigest().decode(),
        )

    def _windows(self, texts: Iterator[str]) -> Iterator[list[np.ndarray]]:
        """Give the sequences ``[CLS] … [SEP]`` that are packed together, a window at a time."""
        window: list[np.ndarray] = []
        size = 0
        for chunk in _chunks(texts, CHUNK_CHARACTERS):
            for batch in _chunks(chunk, BATCH_CHARACTERS):
                for sequence in self._tokenize(batch):
                    window.append(sequence)
                    size += len(sequence)
            if size >= WINDOW:
                yield window
                window = []
                size = 0
        if window:
            yield window

    def _tokenize(self, texts: list[str]) -> Iterator[np.ndarray]:
        """Give the sequences of documents; one that is longer than a row becomes several."""
        for document in self._tokenizer.encode_batch_fast(texts):
            if len(document) <= 2:  # nothing but [CLS] and [SEP]
                continue
            self.documents += 1
            # What is beyond a row's length is in the tokenizer's overflowing parts.
            for part in (document, *document.overflowing):
                yield np.array(part.ids, np.int32)

    def _records(self, sequences: list[np.ndarray]) -> bytes:
        """Pack sequences into rows, write these as records, and count them."""
        # Sequences share rows, so that hardly a position holds padding.
        lengths = [len(sequence) for sequence in sequences]
        packing = buckets.pack(lengths, self._settings.sequence_length)
        features = {
            "input_ids": packing.lay_out(np.concatenate(sequences), self._pad),
            "attention_mask": packing.segment_ids(),
            "position_ids": packing.position_ids(),
        }
        data = format.records(features, self._settings.features)
        self.rows += len(packing.splits) - 1
        self.tokens += packing.tokens
        self.bytes += len(data)
        self.crc.update(data)
        return data


def _chunks(texts: Iterable[str], most_characters: int) -> Iterator[list[str]]:
    """Give texts in lists of ``CHUNK``, or of fewer if they have as many characters before."""
    chunk: list[str] = []
    characters = 0
    for text in texts:
        chunk.append(text)
        characters += len(text)
        if len(chunk) == CHUNK or characters >= most_characters:
            yield chunk
            chunk = []
            characters = 0
    if chunk:
        yield chunk


def write_shard(job: Job, number: int) -> int:
    """Write one shard, then its description: then it is finished. Gives 1, to be added up."""
    # Changed after it was named, and before this process read it.
    if job.source.versions() != job.versions:
        raise CourseError(
            "The text was changed meanwhile.",
            "Records of the old text and of the new one would be mixed.",
            "Run the same command again once it no longer changes, with another folder for output.",
        )
    settings = job.settings
    folder = Folder(job.path)
    name = settings.names[number]
    writer = ShardWriter(settings, job.tokenizer)
    texts = job.source.shard(settings.part, number, settings.shards, settings.seed)
    if folder.exists(name):
        # A run that was killed wrote it, or it is the user's own file: the same bytes tell.
        if not _same_bytes(folder.pieces(name), writer.pieces(texts)):
            raise _foreign(job, name, "Its bytes aren't those of these records.")
    else:
        folder.write(name, writer.pieces(texts))
    description = format.to_json(settings, [writer.shard(name)])
    folder.write(_description_of(name), description)
    return 1


def _same_bytes(file: Iterator[bytes], pieces: Iterator[bytes]) -> bool:
    """Compare a file with pieces, which may be cut at other places."""
    digests = []
    for stream in (file, pieces):
        digest = hashlib.sha256()
        for piece in stream:
            digest.update(piece)
        digests.append(digest.digest())
    return digests[0] == digests[1]


# A runner gives numbers of shards that are done, as they are; `course.runners` has two more.

Task = tuple[Job, int]
Runner = Callable[[Sequence[Task]], Iterable[int]]


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
    run: Runner = one_by_one,
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
    # Who the records are of: everything that their bytes depend on.
    folder = Folder(output)
    tokenizer_json = corpus.canonical(tokenizer)
    parsed = tokenizers.Tokenizer.from_str(tokenizer_json)
    settings = Settings(
        documents=source.digest(),
        part="train" if held_out else "all",
        tokenizer_sha256=hashlib.sha256(tokenizer_json.encode()).hexdigest(),
        vocabulary=parsed.get_vocab_size(),
        sequence_length=sequence_length,
        shards=shards,
        seed=seed,
    )
    _check_known(parsed, source.shard(settings.part, number=0, shards=1, seed=0))
    # One folder, or two: what is held out has a folder in the other one.
    main_job = Job(
        path=folder.path,
        source=source,
        settings=settings,
        tokenizer=tokenizer_json,
        versions=source.versions(),
    )
    jobs = [main_job]
    if held_out:
        fewer_shards = max(1, shards // 10)
        other_part = dataclasses.replace(settings, part=HELD_OUT, shards=fewer_shards)
        path = folder.at(HELD_OUT)
        jobs.append(dataclasses.replace(main_job, path=path, settings=other_part))
    users_folders = [job.path for job in jobs if Folder(job.path).exists("")]
    # Two runs of equal settings write the same bytes to a bucket, each object whole.
    with folder.alone():
        tasks = [(job, number) for job in jobs for number in _missing(job)]
        if tasks:
            for number in run(tasks):
                done(number, len(tasks))
        # The manifest last: a folder with one has all its shards.
        tables = [_finish(job) for job in jobs]
        # The folder inside the other one first.
        for table in reversed(tables):
            if not table.documents:
                _delete(table, with_folder=table.path not in users_folders)
    if not tables[0].documents:
        raise CourseError(
            "There are no documents.",
            "The text has nothing but blank lines, or the tokenizer knows none of its characters.",
            "Look at what you read: a wrong path is common.",
        )
    return tables[0]


def _check_known(tokenizer: tokenizers.Tokenizer, texts: Iterator[str]) -> None:
    """Raise a `CourseError` if most of the first documents' tokens are unknown."""
    tokens = 0
    unknown = 0
    unknown_id = tokenizer.token_to_id("[UNK]")
    first_texts = next(_chunks(texts, BATCH_CHARACTERS), [])
    for document in tokenizer.encode_batch_fast(first_texts):
        tokens += len(document)
        unknown += document.ids.count(unknown_id)
    if 2 * unknown > tokens:
        raise CourseError(
            "The tokenizer doesn't know this text.",
            "Of its first documents more than half of the tokens are [UNK].",
            "Train one on this text (corpus.train_tokenizer), or read another text.",
        )


def _description_of(name: str) -> str:
    """Name the file that describes a shard."""
    return name.replace(".tfrecord", ".json")


def _delete(table: Manifest, with_folder: bool) -> None:
    """Delete records; what else is in the folder is the user's own."""
    folder = Folder(table.path)
    for name in (".lock", MANIFEST, TOKENIZER):
        folder.delete(name)
    for name in table.settings.names:
        folder.delete(name)
        folder.delete(_description_of(name))
    if with_folder and not folder.list():
        folder.delete("")


def _finished(job: Job) -> dict[str, Shard]:
    """Give the shards that are there and described, by name; errors as of `write`."""
    # Only what is described counts: a description is written when its shard is whole.
    folder = Folder(job.path)
    sizes = folder.sizes()
    finished = {}
    for name in sizes:
        is_description = re.fullmatch(r"shard-.*\.json", name)
        if name != MANIFEST and not is_description:
            continue
        table = format.from_json(folder.path, name, folder.read(name))
        format.check_same(table, job.settings)
        if is_description:
            (shard,) = table.shards
            if shard.name in sizes:
                finished[shard.name] = shard
    return finished


def _missing(job: Job) -> list[int]:
    """Give the numbers of the shards to write; errors as of `write`."""
    folder = Folder(job.path)
    finished = _finished(job)
    if folder.read(TOKENIZER) not in (None, job.tokenizer.encode()):
        raise _foreign(job, TOKENIZER, "It isn't that of these records.")
    # Finished shards are not written again, so they must be what they were.
    for name, shard in finished.items():
        shard.check(folder.pieces(name))
    names = enumerate(job.settings.names)
    return [number for number, name in names if name not in finished]


def _foreign(job: Job, name: str, why: str) -> CourseError:
    """Make the error of a file that is where one of the records belongs, and isn't that."""
    return CourseError(
        f"{short(job.path)} holds a {name} from another run or program.",
        f"{why} It may be your own file, or from a run with other settings.",
        "Name another folder, or move the file away; then run the same command again.",
    )


def _finish(job: Job) -> Manifest:
    """Collect a folder's shards, which are all there, and write its manifest."""
    folder = Folder(job.path)
    finished = _finished(job)
    with unreadable(f"A shard of {short(job.path)} is gone.", "Run the same command again."):
        shards = tuple(finished[name] for name in job.settings.names)
    folder.write(TOKENIZER, job.tokenizer)
    folder.write(MANIFEST, format.to_json(job.settings, shards))
    return Manifest(job.path, job.settings, shards)
