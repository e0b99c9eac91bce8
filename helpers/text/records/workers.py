"""Shards written side by side, in processes that end with the one that started them."""

import concurrent.futures
import contextlib
import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence

from helpers.base.folders import Folder
from helpers.text.records.encoder import Encoder
from helpers.text.records.format import Settings
from helpers.text.records.shards import ShardWriter, chunks


def write_in_parallel(
    documents: Sequence[str],
    missing: Sequence[tuple[str, list[int]]],
    settings: Settings,
    output: str,
    tokenizer: str,
    workers: int,
    done: Callable[[int], None],
) -> None:
    """Write ``missing`` shards in processes of their own; each gets its shard's texts only."""
    with concurrent.futures.ProcessPoolExecutor(
        workers, multiprocessing.get_context("spawn"), _start, (settings, output, tokenizer)
    ) as pool:
        running = {}
        try:
            for name, numbers in missing:
                while len(running) == workers:
                    _wait(running, done)
                texts = [documents[number] for number in numbers]
                with _ctrl_c_later():  # the first one starts the processes
                    running[pool.submit(_work, name, numbers, texts)] = len(numbers)
            while running:
                _wait(running, done)
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise


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


def _wait(running: dict[concurrent.futures.Future, int], done: Callable[[int], None]) -> None:
    first = concurrent.futures.FIRST_COMPLETED
    for future in concurrent.futures.wait(running, return_when=first).done:
        documents = running.pop(future)
        future.result()
        done(documents)


_worker: dict[str, ShardWriter] = {}


def _start(settings: Settings, output: str, tokenizer: str) -> None:
    """Prepare a process for all shards it will write; end it when its parent is gone."""
    import tokenizers

    def watch() -> None:
        multiprocessing.connection.wait([multiprocessing.parent_process().sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
    # Ctrl-C reaches all processes; the parent says what happens, when the shards at work are done.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    encode = Encoder(tokenizers.Tokenizer.from_str(tokenizer))
    _worker["writer"] = ShardWriter(settings, encode, Folder(output))


def _work(name: str, numbers: list[int], texts: list[str]) -> None:
    documents = dict(zip(numbers, texts, strict=True))
    _worker["writer"](chunks(documents, numbers), name, lambda documents: None)
