"""Lets a command print on every output: few characters, a reader who leaves, a full disk."""

import codecs
import contextlib
import ctypes
import errno
import os
import pathlib
import sys
import unicodedata
from collections.abc import Iterable, Iterator
from types import ModuleType
from typing import TextIO

from helpers.base.errors import CourseError

# For an output that lacks them (Windows' code pages, LANG=C). Quotation marks become ', which
# ends no string of JSON.
_PLAIN = {
    **{"✓": "+", "✗": "x", "✕": "x", "×": "x", "·": ".", "•": "*", "’": "'", "“": "'", "”": "'"},
    **{"→": "->", "←": "<-", "–": "-", "—": "-", "⁄": "/", "─": "-", "━": "-", "│": "|"},
}


def plain(error: UnicodeError) -> tuple[str, int]:
    """Write in ASCII what an encoding lacks (for ``codecs.register_error``): ``✓`` as ``+``."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    said = ""
    for character in error.object[error.start : error.end]:
        parts = unicodedata.normalize("NFKD", character)
        said += "".join(_PLAIN.get(part, part if part.isascii() else "") for part in parts) or "?"
    return said, error.end


codecs.register_error("helpers.plain", plain)

_FULL = (errno.ENOSPC, errno.EDQUOT)


def _flush(streams: Iterable[TextIO]) -> None:
    """Let what was printed leave, or go nowhere, so that Python's exit is quiet."""
    failed = None
    for stream in streams:
        try:
            stream.flush()
        except OSError as error:
            failed = error
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)
    if failed:
        raise failed


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

    What an encoding lacks is written in ASCII (typer's own ``echo`` writes UTF-8 where the encoding
    is ASCII). When the reader of a pipe has left, the program ends with status 1, as Python's
    documentation advises; on a full disk with a sentence and status 2.

    Yields:
        What to give to typer as ``color``: False if ``NO_COLOR`` is set (https://no-color.org),
        else None.
    """
    # A closed one (>&-) would leave its number to the next file that is opened.
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: PTH123, SIM115
    streams = sys.stdout, sys.stderr
    for stream in streams:
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="helpers.plain")
    try:
        try:
            yield False if os.environ.get("NO_COLOR") else None
        finally:
            _flush(streams)
    except OSError as error:
        if error.errno not in (errno.EPIPE, *_FULL):
            raise
        with contextlib.suppress(OSError):
            if error.errno in _FULL:
                fix = "Make room there, or send it to another place."
                what = "There is no room for what this command writes."
                told = CourseError(what, f"{error.strerror}.", fix)
                print(told, file=sys.stderr)  # noqa: T201
        with contextlib.suppress(OSError):
            _flush(streams)
        raise SystemExit(1 if error.errno == errno.EPIPE else 2) from None
