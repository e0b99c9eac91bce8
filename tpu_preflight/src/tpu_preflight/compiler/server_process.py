"""The compiler's process, from outside: what it needs, and how long it lives.

The process itself is `server`. Its death, a time limit or a memory limit is an answer like others.
"""

import contextlib
import importlib.metadata
import os
import platform
import sys
import threading
from collections.abc import Iterator

from tpu_preflight.processes import Child

# What a child needs before it imports jax: no question to a metadata server that isn't there, no
# lock that two compilers would fight for, no log files. The name is any that libtpu accepts; the
# topology that is compiled for comes with each job.
CHILD_ENVIRONMENT = {
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-4",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_MIN_LOG_LEVEL": "3",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "JAX_PLATFORMS": "cpu",
}


def versions() -> dict[str, str]:
    """Find the versions of jax, jaxlib and libtpu, where installed, without importing them."""
    versions = {}
    for name in ("jax", "jaxlib", "libtpu"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return versions


def installation_problem() -> str:
    """Say which package is missing and how to add it; empty when none is."""
    absent = sorted({"jax", "libtpu"} - versions().keys())
    if not absent:
        return ""
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        return "Google's TPU compiler (libtpu) exists for Linux on x86-64 only."
    verb = "is" if len(absent) == 1 else "are"
    return (
        f"{' and '.join(absent)} {verb} not installed. Add Google's TPU compiler with: "
        "python -m pip install 'tpu-preflight[jax]'"
    )


def new_process() -> Child:
    """Make a process for jax, which starts with its first job."""
    return Child(f"{__package__}.server", os.environ | CHILD_ENVIRONMENT)


# The process of each `started` block, with the lock of who uses it.
_shared: list[tuple[Child, threading.Lock]] = []


@contextlib.contextmanager
def started() -> Iterator[None]:
    """Keep the process that the first `compile` inside starts for those after it in the block.

    A second compile at the same time has a process of its own. An answer from the disk needs none,
    whose start takes seconds of processor time.

    Example:
        >>> with compiler.started():
        ...     results = [compiler.compile(program) for program in programs]
    """
    with contextlib.closing(new_process()) as process:
        entry = (process, threading.Lock())
        _shared.append(entry)
        try:
            yield
        finally:
            _shared.remove(entry)


@contextlib.contextmanager
def acquire() -> Iterator[Child]:
    """Take the process that `started` keeps; where it is in use, or is none, one of its own."""
    for process, lock in _shared:
        if lock.acquire(blocking=False):
            try:
                yield process
            finally:
                lock.release()
            return
    with contextlib.closing(new_process()) as process:
        yield process
