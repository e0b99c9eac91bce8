"""Runners that write shards side by side: on this machine's processes, or by Apache Beam.

Each gives numbers of shards that are done, as they are (`helpers.text.records.write`).
"""

import concurrent.futures
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator, Sequence

from helpers.base.errors import CourseError, cause
from helpers.text.records.writing import Task, write_shard


def end_with_parent() -> None:
    """Let this process, one of a pool, end with the one that started it, from the call on."""

    def watch() -> None:
        multiprocessing.parent_process().join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def by_processes(tasks: Sequence[Task], workers: int) -> Iterator[int]:
    """Write shards side by side; raise a `CourseError` if a process was killed."""
    spawn = multiprocessing.get_context("spawn")
    jobs, numbers = zip(*tasks, strict=True)
    # Ctrl-C and a closed terminal reach all processes. Those that start now ignore them: the
    # parent says what happens, when the shards at work are done.
    handlers = {}
    for number in (signal.SIGINT, signal.SIGHUP):
        handlers[number] = signal.signal(number, signal.SIG_IGN)
    try:
        pool = concurrent.futures.ProcessPoolExecutor(
            max_workers=min(workers, len(tasks)), mp_context=spawn, initializer=end_with_parent
        )
    except OSError as error:
        raise CourseError(
            "No processes can work side by side here.",
            f"They need semaphores, which Linux has in /dev/shm ({cause(error)}).",
            "Leave --workers out, or give the container a /dev/shm that you may write to.",
        ) from error
    else:
        results = pool.map(write_shard, jobs, numbers)
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
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


def by_beam(tasks: Sequence[Task], runner: str, flags: Sequence[str]) -> Iterator[int]:
    """Write shards with the machines of a Beam runner; raise a `CourseError` if it fails.

    All workers must see files and folders. ``runner`` is such as ``FnApiRunner`` (this machine),
    ``flags`` are Beam's own options, such as ``--project=mine``.
    """
    try:
        import apache_beam as beam
        from apache_beam.options.pipeline_options import PipelineOptions
    except ModuleNotFoundError:
        raise CourseError(
            "Apache Beam is not installed.",
            "It holds other packages back, so it has an environment apart.",
            "In the course's folder `make build/beam/.installed` makes that, for `build/beam/bin/"
            "python -m course prepare …`; elsewhere `python -m pip install apache-beam==2.77.0`.",
        ) from None
    try:
        options = PipelineOptions([f"--runner={runner}", *flags])
        with beam.Pipeline(options=options) as pipeline:
            # Without the reshuffle a runner may fuse the steps, and one worker writes all shards.
            shuffled = pipeline | beam.Create(tasks) | beam.Reshuffle()
            _ = shuffled | beam.MapTuple(write_shard)
    except Exception as error:  # each runner has its own kinds of errors
        message = " ".join(str(error).split())
        raise CourseError(
            f"The pipeline failed on {runner}.",
            message[-600:] or type(error).__name__,
            "Fix that and run the same command again: finished shards are kept.",
        ) from error
    yield len(tasks)
