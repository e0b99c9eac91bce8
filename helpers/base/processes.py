"""A process and those it started: how they end, and the memory that they take."""

import contextlib
import signal
from collections.abc import Iterable

import psutil


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
