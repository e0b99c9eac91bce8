"""Lets a command print on every output, and keeps TensorFlow's log off the terminal."""

import contextlib
import ctypes
import os
import pathlib
import sys
from collections.abc import Iterator
from types import ModuleType

# Of the Abseil inside TensorFlow 2.20: absl::SetMinLogLevel.
_SET_LEVEL = "_ZN4absl12lts_2025012714SetMinLogLevelENS0_18LogSeverityAtLeastE"
_ERRORS = 2  # absl::LogSeverityAtLeast::kError


def errors_only(tensorflow: ModuleType) -> None:
    """Keep what TensorFlow logs below errors off the terminal, from Python and from C++.

    Some lines of C++ (``I0000 … Compiled cluster using XLA!``) heed no ``TF_CPP_MIN_LOG_LEVEL``
    (tensorflow/tensorflow#100442, read 2026-11). Where the library has no such function, they stay.
    """
    tensorflow.get_logger().setLevel("ERROR")
    folder = pathlib.Path(tensorflow.__file__).parent
    for library in folder.glob("libtensorflow_framework.*"):
        with contextlib.suppress(OSError, AttributeError):
            getattr(ctypes.CDLL(str(library)), _SET_LEVEL)(_ERRORS)


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
