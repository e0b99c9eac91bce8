"""The environment of this process, and the processes that it starts to have something served."""

import contextlib
import glob
import os
import pathlib
import secrets
import subprocess
import threading
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from typing import Any

import psutil

from helpers.base.errors import CourseError
from helpers.base.settings import ROOT


def beside(path: pathlib.Path) -> pathlib.Path:
    """Name what is on its way to ``path``: hidden, with the number of this process."""
    return path.with_name(f".{path.name}.{os.getpid():08x}{secrets.token_hex(4)}")


def leftovers(path: pathlib.Path) -> list[pathlib.Path]:
    """Find what killed processes left of a file or folder; a backup named by a date isn't ours."""
    named = path.parent.glob(f".{glob.escape(path.name)}." + "[0-9a-f]" * 16)
    return [each for each in named if not psutil.pid_exists(int(each.name[-16:-8], 16))]


@contextlib.contextmanager
def variables_set(
    new: Mapping[str, Any], of: MutableMapping[str, Any] = os.environ
) -> Iterator[None]:
    """Set values by name, of this process's environment if no other; put back what was there."""
    before = {name: of[name] for name in new if name in of}
    of.update(new)
    try:
        yield
    finally:
        for name in new:
            of.pop(name, None)
        of.update(before)


@contextlib.contextmanager
def served(
    command: Sequence[object], environment: Mapping[str, str], log: pathlib.Path, seconds: float
) -> Iterator[tuple[subprocess.Popen, int]]:
    """Run a program that prints its port as soon as it listens; kill it at the block's end.

    ``environment`` has all its variables, and ``log`` gets what it writes to standard error. If it
    isn't ready within so many ``seconds``, a `CourseError` has the end of the log.
    """
    with (
        log.open("wb") as output,
        subprocess.Popen(
            [str(word) for word in command],
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
        late = threading.Timer(seconds, process.kill)
        late.start()
        port = process.stdout.readline()
        late.cancel()
        if port:
            yield process, int(port)
            return
        said = log.read_text("utf-8", "replace").strip().splitlines()[-12:]
        raise CourseError(
            "A process of the course did not start.",
            "\n".join(said) or f"It was not ready within {seconds:g} seconds.",
            "Run the cell again; if it stays so, restart the kernel.",
        )
