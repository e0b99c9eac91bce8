"""Files that are whole or absent."""

import os
import pathlib
import shutil
from collections.abc import Iterable

from helpers.base import temporary
from helpers.base.errors import CourseError, cause


class CantWrite(CourseError):
    """A file could not be written; the earlier file is untouched."""


def cant_write(path: pathlib.PurePath, error: Exception) -> CantWrite:
    """Make the error that says why ``path``, here or in a bucket, could not be written."""
    return CantWrite(
        f"{path.name[:60]} could not be written.",
        f"{cause(error)} ({path.parent.name or path.parent}).",
        "Fix that, or name another folder or bucket that you may write to, and run the same "
        "command again; nothing already written is lost.",
    )


def write(path: pathlib.Path, data: str | bytes | Iterable[bytes]) -> None:
    """Replace a file by the whole content, or by pieces of it in order: whole or absent.

    Missing parent folders are made, text is written as UTF-8, the file's mode stays, and of a
    symbolic link the file that it leads to is replaced. Raises `CantWrite`.
    """
    if isinstance(data, str):
        data = data.encode()
    pieces = [data] if isinstance(data, bytes) else data
    try:
        _replace(path.resolve(), pieces)
    except OSError as error:
        raise cant_write(path, error) from error


def _replace(path: pathlib.Path, pieces: Iterable[bytes]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # What a process left that was killed while it wrote: nobody else would delete it.
    for leftover in temporary.leftovers(path):
        leftover.unlink(missing_ok=True)
    with temporary.reserved_file(path) as writing:
        with writing.open("wb") as file:
            file.writelines(pieces)
            file.flush()
            # On disk before it has the name: else a crash could leave an empty file.
            os.fsync(file.fileno())
        if path.exists():
            shutil.copymode(path, writing)
        writing.replace(path)
