"""A limit for a call, and a process: what it and its own take, and how they end."""

import contextlib
import queue
import signal
import threading
from collections.abc import Callable, Iterable
from typing import TypeVar

import psutil

Result = TypeVar("Result")


class TooLate(Exception):
    """A task did not end within its time limit."""


def within(seconds: float, task: Callable[[], Result]) -> Result:
    """Run a task that may hang, such as a name look-up, which no socket timeout reaches.

    It runs in a thread of its own, which is left behind if it is late. Its result and its errors
    are passed on.

    Raises:
        TooLate: The limit has passed; the message says so in one sentence.
    """
    results: queue.Queue = queue.Queue()

    def work() -> None:
        try:
            results.put((task(), None))
        except BaseException as error:
            results.put((None, error))

    threading.Thread(target=work, daemon=True).start()
    try:
        result, error = results.get(timeout=seconds)
    except queue.Empty:
        raise TooLate(f"No answer in {seconds:g} seconds.") from None
    if error is not None:
        raise error
    return result


def family(pid: int) -> list[psutil.Process]:
    """List a process and all that it started, however deep; none when it has ended."""
    try:
        first = psutil.Process(pid)
        return [first, *first.children(recursive=True)]
    except psutil.Error:
        return []


def memory(members: Iterable[psutil.Process]) -> int:
    """Add up resident memory in bytes; what two processes share counts twice, an ended one 0."""
    total = 0
    for member in members:
        with contextlib.suppress(psutil.Error):
            total += member.memory_info().rss
    return total


def kill(members: Iterable[psutil.Process]) -> None:
    """Kill processes at once; one that has ended is no error."""
    for member in members:
        with contextlib.suppress(psutil.Error):
            member.kill()


def ending(status: int) -> str:
    """Say how a process ended: ``with status 1``, ``by SIGKILL``."""
    return f"by {signal.Signals(-status).name}" if status < 0 else f"with status {status}"
