"""Writing records: a shard is a pure function, and a loop, a process pool or Beam calls it."""

import collections
import concurrent.futures
import contextlib
import dataclasses
import functools
import hashlib
import importlib
import itertools
import multiprocessing
import os
import pathlib
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import filelock
import fsspec
import google_crc32c
import numpy as np
import tokenizers

from helpers.base.errors import CourseError
from helpers.base.files import CantWrite
from helpers.base.folders import Folder, short
from helpers.text import buckets, documents
from helpers.text.records import format
from helpers.text.records.encoder import Encoder, canonical
from helpers.text.records.format import HELD_OUT, MANIFEST, SETTINGS, TOKENIZER, Manifest, Settings

CHUNK = 1_000  # documents that are tokenized together
WINDOW = 2**20  # tokens whose sequences are packed together: a bound for memory


@dataclasses.dataclass(frozen=True)
class Job:
    """A folder of records to write."""

    path: str  # here or ``gs://``
    source: documents.Source  # what to read
    settings: Settings
    tokenizer: str  # as JSON

    @property
    def names(self) -> list[str]:
        """Give the shards' names, in order."""
        return [format.shard_name(k, self.settings.shards) for k in range(self.settings.shards)]


@functools.lru_cache(maxsize=2)
def _encoder(tokenizer: str) -> Encoder:
    return Encoder(tokenizers.Tokenizer.from_str(tokenizer))


def write_shard(job: Job, number: int) -> int:
    """Write one shard, then its description: then it is finished. Gives 1, to be added up."""
    encode, settings, folder = _encoder(job.tokenizer), job.settings, Folder(job.path)
    counts = collections.Counter()

    def pieces() -> Iterator[bytes]:
        drawn = settings.part, number, settings.shards, settings.seed
        texts = documents.documents(job.source, *drawn)
        for sequences in _windows(texts, encode, settings, counts):
            lengths = np.array([len(sequence) for sequence in sequences]) // encode.type.itemsize
            packing = buckets.pack(lengths, settings.sequence_length)
            ids = np.frombuffer(b"".join(sequences), encode.type)
            features = {
                "input_ids": packing.lay_out(ids, encode.pad_id),
                "attention_mask": packing.segment_ids(),
                "position_ids": packing.position_ids(),
            }
            data = format.records(features, settings.features)
            counts["sequences"] += len(sequences)
            counts["rows"] += len(packing.splits) - 1
            counts["tokens"] += packing.tokens
            counts["bytes"] += len(data)
            counts["crc"] = google_crc32c.extend(counts["crc"], data)
            yield data

    name = job.names[number]
    folder.write(name, pieces())
    numbers = {key: counts[key] for key in ("documents", "sequences", "rows", "tokens", "bytes")}
    shard = format.Shard(name, **numbers, crc32c=f"{counts['crc']:08x}")
    folder.write(format.description(name), format.to_json(settings, shard=vars(shard)))
    return 1


def _windows(
    texts: Iterator[str], encode: Encoder, settings: Settings, counts: collections.Counter
) -> Iterator[list[bytes]]:
    """Give sequences ``[CLS] … [SEP]``, as many as are packed together.

    Documents are cut into pieces as Hugging Face's overflowing tokens are.
    """
    room = (settings.sequence_length - 2) * encode.type.itemsize
    window, size = [], 0
    while chunk := list(itertools.islice(texts, CHUNK)):
        for ids in filter(None, encode(chunk)):
            counts["documents"] += 1
            size += len(ids)
            for start in range(0, len(ids), room):
                window.append(encode.cls + ids[start : start + room] + encode.sep)
        if size >= WINDOW * encode.type.itemsize:
            yield window
            window, size = [], 0
    if window:
        yield window


# Three runners of it: each gives numbers of shards that are done, as they are.

Task = tuple[Job, int]


def one_by_one(tasks: Sequence[Task]) -> Iterator[int]:
    """Write shards in this process."""
    return itertools.starmap(write_shard, tasks)


def by_processes(tasks: Sequence[Task], workers: int) -> Iterator[int]:
    """Write shards side by side; raise a `CourseError` if a process was killed.

    A script that calls it has its main part under ``if __name__ == "__main__":``.
    """
    spawn = multiprocessing.get_context("spawn")
    # Ctrl-C reaches all processes. Those that start now ignore it: the parent says what happens,
    # when the shards at work are done.
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    pool = concurrent.futures.ProcessPoolExecutor(workers, spawn, _end_with_parent)
    results = pool.map(write_shard, *zip(*tasks, strict=True))
    signal.signal(signal.SIGINT, before)
    try:
        yield from results
    except concurrent.futures.process.BrokenProcessPool:
        raise CourseError(
            "One of the processes was killed.",
            "The system does that when memory is short; or somebody did.",
            "Run the same command again, with fewer --workers if it was memory: finished shards "
            "are kept.",
        ) from None
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _end_with_parent() -> None:
    def watch() -> None:
        multiprocessing.parent_process().join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def by_beam(tasks: Sequence[Task], runner: str, flags: Sequence[str]) -> Iterator[int]:
    """Write shards with the machines of a Beam runner; raise a `CourseError` if it fails.

    Files and folders must be where all workers see them. Each machine reads all documents.

    Args:
        tasks: What to write.
        runner: Such as ``FnApiRunner`` (this machine) or ``DataflowRunner``.
        flags: Beam's own options, such as ``--project=mine``.
    """
    try:
        import apache_beam as beam
        from apache_beam.options.pipeline_options import PipelineOptions
    except ModuleNotFoundError:
        raise CourseError(
            "Apache Beam is not installed.",
            "It holds other packages back, so it has an environment apart.",
            "In the course's folder `make build/beam/.installed` makes that, for `build/beam/bin/"
            "python -m helpers prepare …`; elsewhere `python -m pip install apache-beam==2.77.0`.",
        ) from None
    try:
        if "." in runner:  # a runner that Beam doesn't know by name brings options of its own
            importlib.import_module(runner.rpartition(".")[0])
        options = PipelineOptions([f"--runner={runner}", *flags])
        with beam.Pipeline(options=options) as pipeline:
            _ = pipeline | beam.Create(tasks) | beam.Reshuffle() | beam.MapTuple(write_shard)
    except Exception as error:  # each runner has errors of its own
        raise CourseError(
            f"The pipeline failed on {runner}.",
            " ".join(str(error).split())[-600:] or type(error).__name__,
            "Mend that and run the same command again: finished shards are kept.",
        ) from error
    yield len(tasks)


def write(
    source: Sequence[str] | documents.Files,
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
        source: The documents, or where they are (`documents.find`). They are cleaned, and empty
            ones left out.
        output: Folder here or ``gs://bucket/folder``.
        tokenizer: A ``BertTokenizerFast``, a ``tokenizers`` tokenizer, or a ``tokenizer.json``.
        sequence_length: Positions per row, at least 3. Longer documents become several sequences.
        shards: Number of files. For training, some 100 MB each, and several per reading machine.
        seed: Distributes documents over the shards.
        held_out: Write the last of each ten documents to the folder ``held-out``, in a tenth of the
            shards, and the others to ``output``.
        run: `one_by_one`, or `by_processes` or `by_beam` with their options.
        done: Called with the number of shards just written and of those to write in all.

    Raises:
        OtherTokenizer, OtherSettings: The folder holds other records.
        ShardDamaged: What an earlier run wrote was changed since.
        files.CantWrite: The disk is full, or nothing can be written there.
        CourseError: A file or the tokenizer can't be used, there is no document, or another process
            writes to the folder.
        ValueError: A number is out of its range.
    """
    if not isinstance(source, documents.Files):
        source = documents.Listed(tuple(source))
    text, folder = canonical(tokenizer), Folder(output)
    settings = Settings(
        documents=documents.digest(source),
        part="train" if held_out else "all",
        tokenizer_sha256=hashlib.sha256(text.encode()).hexdigest(),
        vocabulary=_encoder(text).vocabulary,
        sequence_length=sequence_length,
        shards=shards,
        seed=seed,
    )
    jobs = [Job(folder.path, source, settings, text)]
    if held_out:
        fewer = dataclasses.replace(settings, part=HELD_OUT, shards=max(1, shards // 10))
        jobs.append(Job(folder.at(HELD_OUT), source, fewer, text))
    with _alone(folder):
        for job in jobs:
            _claim(job)
        tasks = [(job, number) for job in jobs for number in _missing(job)]
        for number in run(tasks) if tasks else ():
            done(number, len(tasks))
        written, *apart = [_finish(job) for job in jobs]
        for empty in (made for made in apart if not made.documents):
            Folder(empty.path).delete("")
    if not written.documents:
        raise CourseError(
            "There are no documents.",
            "The text has nothing but blank lines, or the tokenizer knows none of its characters.",
            "Look at what you read: a wrong path is common.",
        )
    return written


@contextlib.contextmanager
def _alone(folder: Folder) -> Iterator[None]:
    """Keep other processes of this machine away from a folder; the lock ends with the process.

    A bucket has no lock: there two runs of equal settings write the same bytes, each object whole.
    """
    if folder.remote:
        yield
        return
    folder.check()
    pathlib.Path(folder.absolute).mkdir(parents=True, exist_ok=True)
    try:
        with filelock.FileLock(folder.at(".lock"), timeout=0):
            yield
    except filelock.Timeout:
        raise CourseError(
            f"Another process writes to {short(folder.path)}.",
            "Two at once would be in each other's way.",
            "Wait until it has ended, or write to another folder.",
        ) from None


def _claim(job: Job) -> None:
    """Make a folder one for these settings, if it is not one for others.

    Raises:
        OtherTokenizer, OtherSettings: It is.
    """
    folder, content = Folder(job.path), format.to_json(job.settings)
    if not folder.exists(SETTINGS):
        if (manifest := folder.read(MANIFEST)) is not None:
            format.from_json(MANIFEST, manifest)  # of an earlier version: that is told
        if folder.remote:  # another machine may do the same now: one of the two is first
            system, path = fsspec.core.url_to_fs(folder.at(SETTINGS), use_listings_cache=False)
            try:
                system.pipe_file(path, content, mode="create")
            except FileExistsError:
                pass
            except Exception as error:  # gcsfs has many
                raise CantWrite(
                    f"{SETTINGS} could not be written to the bucket.",
                    f"{type(error).__name__}: {error}",
                    "Check the bucket's name and that you may write to it.",
                ) from error
        else:
            folder.write(SETTINGS, content)
    there, _ = format.from_json(SETTINGS, folder.read(SETTINGS))
    format.check_same(folder.path, there, job.settings)
    if (beside := folder.read(TOKENIZER)) is None:
        folder.write(TOKENIZER, job.tokenizer)
    else:
        format.check_tokenizer(folder.path, beside, there)


def _missing(job: Job) -> list[int]:
    """Give the numbers of the shards that are not finished; raise `ShardDamaged` if one is not."""
    folder, missing = Folder(job.path), []
    there = folder.sizes()
    for number, name in enumerate(job.names):
        if name in there and format.description(name) in there:
            _described(folder, name).check(folder.pieces(name))
        else:
            missing.append(number)
    return missing


def _described(folder: Folder, name: str) -> format.Shard:
    name = format.description(name)
    return format.from_json(name, folder.read(name))[1][0]


def _finish(job: Job) -> Manifest:
    """Collect a folder's shards, and write its manifest; all shards are there."""
    folder = Folder(job.path)
    shards = tuple(_described(folder, name) for name in job.names)
    content = format.to_json(job.settings, shards=list(map(vars, shards)))
    if folder.read(MANIFEST) != content:
        folder.write(MANIFEST, content)
    return Manifest(job.path, job.settings, shards)
