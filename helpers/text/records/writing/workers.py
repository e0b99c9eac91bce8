"""The processes of one machine that read, sort and write; they end with the one that started them.

One process works in its own memory, without starting another.
"""

import concurrent.futures
import concurrent.futures.process
import contextlib
import multiprocessing
import multiprocessing.connection
import os
import pathlib
import signal
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, Self

from helpers.base.errors import CourseError
from helpers.base.folders import Folder
from helpers.text.records.encoder import Encoder
from helpers.text.records.plan import Plan, Source, Sums
from helpers.text.records.writing.shards import ShardWriter
from helpers.text.records.writing.sorting import Part, Run, Sorter, merged

Done = Callable[[str, int], None]


class Worker:
    """One process's part: it reads sources, and writes shards."""

    def __init__(self, plan: Plan, room: pathlib.Path) -> None:
        self._plan, self._room = plan, room
        self._encoder: Encoder | None = None

    def read(
        self, source: Source, missing: Collection[int], sorter: Sorter, sums: Sums, done: Done
    ) -> None:
        """Sort a source's documents by shard, and count those of all shards."""
        for document in source.documents(lambda size: done("read", size)):
            shard, entry = self._plan.entry(document)
            sums.add(shard, entry)
            if shard in missing:
                sorter.add(entry)
        sums.reports.append((source.name, source.report()))

    def sorter(self) -> Sorter:
        """Make a place for documents."""
        return Sorter(self._room, len(self._plan.shards))

    def write(self, shard: int, parts: Iterable[Iterable[bytes]], done: Done) -> None:
        """Write one shard."""
        if self._encoder is None:
            import tokenizers

            self._encoder = Encoder(tokenizers.Tokenizer.from_str(self._plan.tokenizer))
        target, name = self._plan.shards[shard]
        writer = ShardWriter(target.settings, self._encoder, Folder(target.path))
        writer(merged(parts), name, lambda documents: done("written", documents))


class Machine:
    """Does a plan's work with one process or several."""

    def __init__(self, plan: Plan, room: pathlib.Path, workers: int) -> None:
        self._plan, self._workers = plan, workers
        self._worker = Worker(plan, room)
        self._pool = None
        if workers > 1:
            self._pool = concurrent.futures.ProcessPoolExecutor(
                workers, multiprocessing.get_context("spawn"), _start, (self._worker,)
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)

    def sort(
        self, sources: Sequence[Source], missing: Collection[int], done: Done
    ) -> tuple[Sums, list[Run]]:
        """Read all sources; give what is known of each shard, and the documents of the missing."""
        sums = Sums.zero(len(self._plan.shards))
        if self._pool is None:
            sorter = self._worker.sorter()
            for source in sources:
                self._worker.read(source, missing, sorter, sums, done)
            return sums, sorter.runs(keep=True)
        runs = []
        for some, written, read in self._map(_read, ((source, missing) for source in sources)):
            done("read", read)
            sums.join(some)
            runs += written
        return sums, runs

    def write(self, shards: Sequence[int], runs: Sequence[Run], done: Done) -> None:
        """Write shards."""
        work = ((shard, [run.part(shard) for run in runs]) for shard in shards)
        if self._pool is None:
            for shard, parts in work:
                self._worker.write(shard, parts, done)
        else:
            for documents in self._map(_write, work):
                done("written", documents)

    def _map(self, call: Callable, work: Iterable[tuple]) -> Iterator[Any]:
        """Give results as they come; no more work is handed out than there are processes."""
        running, first = set(), concurrent.futures.FIRST_COMPLETED
        try:
            for arguments in work:
                if len(running) == self._workers:
                    ended, running = concurrent.futures.wait(running, return_when=first)
                    yield from (future.result() for future in ended)
                with _ctrl_c_later():  # the first ones start the processes
                    running.add(self._pool.submit(call, *arguments))
            for future in concurrent.futures.as_completed(running):
                yield future.result()
        except concurrent.futures.process.BrokenProcessPool:
            raise CourseError(
                "One of the processes was killed.",
                "The system does that when memory is short; or somebody did.",
                "Run the same command again, with fewer --workers if it was memory: finished "
                "shards are kept.",
            ) from None


@contextlib.contextmanager
def _ctrl_c_later() -> Iterator[None]:
    """Hold Ctrl-C back; a process that starts meanwhile inherits that from the beginning."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


_here: dict[str, Worker] = {}


def _start(worker: Worker) -> None:
    """Prepare a process for all it will do; end it when its parent is gone."""

    def watch() -> None:
        multiprocessing.connection.wait([multiprocessing.parent_process().sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
    # Ctrl-C reaches all processes; the parent says what happens, when the shards at work are done.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _here["worker"] = worker


def _read(source: Source, missing: Collection[int]) -> tuple[Sums, list[Run], int]:
    worker = _here["worker"]
    sorter, sums = worker.sorter(), Sums.zero(len(worker._plan.shards))
    read = []
    worker.read(source, missing, sorter, sums, lambda what, size: read.append(size))
    return sums, sorter.runs(keep=False), sum(read)


def _write(shard: int, parts: list[Part]) -> int:
    written = []
    _here["worker"].write(shard, parts, lambda what, documents: written.append(documents))
    return sum(written)
