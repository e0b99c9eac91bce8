"""Lets a command print on every output."""

import contextlib
import os
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def on_any_output() -> Iterator[bool | None]:
    """Let the program inside print on whatever it is given, without a traceback.

    A character that an encoding lacks (Windows' code pages, LANG=C) becomes ``?``. When the reader
    of a pipe has left, the program ends with status 1, as Python's documentation advises.

    Yields:
        What to give to typer as ``color``: False if ``NO_COLOR`` is set (https://no-color.org),
        else None.
    """
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    try:
        try:
            yield False if os.environ.get("NO_COLOR") else None
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # flushed again at the end
        raise SystemExit(1) from None
