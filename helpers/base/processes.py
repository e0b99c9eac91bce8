"""The environment of this process, and the processes that it starts to have something served."""

import contextlib
import os
import pathlib
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from typing import Any

from helpers.base.errors import CourseError
from helpers.base.settings import ROOT

_LINES_OF_LOG = 12  # that a message shows


@contextlib.contextmanager
def variables_set(
    values: Mapping[str, Any], target: MutableMapping[str, Any] = os.environ
) -> Iterator[None]:
    """Set values by name, of this process's environment if no other; restore them afterwards."""
    previous = {name: target[name] for name in values if name in target}
    target.update(values)
    try:
        yield
    finally:
        # Those that were not set before are taken out again.
        for name in values:
            target.pop(name, None)
        target.update(previous)


@contextlib.contextmanager
def served(
    command: Sequence[object], environment: Mapping[str, str], log: pathlib.Path, seconds: float
) -> Iterator[tuple[subprocess.Popen, int]]:
    """Run a program that prints its port as soon as it listens; kill it at the block's end.

    ``environment`` has all its variables, and ``log`` gets what it writes to standard error. If it
    isn't ready within so many ``seconds``, a `CourseError` says so and has the end of the log.
    """
    arguments = [str(word) for word in command]
    with (
        log.open("wb") as output,
        subprocess.Popen(
            arguments,
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=output,
            start_new_session=True,  # a notebook's interrupt goes to the kernel's whole group
        ) as process,
        contextlib.ExitStack() as stack,
    ):
        stack.callback(process.kill)
        # A read has no time limit: the timer ends the process, and that ends the read.
        timer = threading.Timer(seconds, process.kill)
        start_time = time.monotonic()
        timer.start()
        port = process.stdout.readline()  # empty once the process has ended, or was killed
        timer.cancel()
        timer.join()  # it may be killing just now
        if port and process.poll() is None:
            yield process, int(port)
            return
        lines = log.read_text("utf-8", "replace").strip().splitlines()[-_LINES_OF_LOG:]
        # What it wrote is no reason then: most of it is harmless.
        if time.monotonic() - start_time >= seconds:
            lines.insert(0, f"It was not ready within {seconds:g} seconds.")
        raise CourseError(
            "A process of the course did not start.",
            "\n".join(lines) or "It ended without a word.",
            "Run the cell again; if it happens again, restart the kernel.",
        )
