"""Files that are whole or absent."""

import errno
import os
import pathlib
import tempfile
from collections.abc import Iterable

from helpers.base.errors import CourseError


class CantWrite(CourseError):
    """A file could not be written; what stood there before is untouched."""


_FULL = (
    "The disk is full.",
    "Make room, then run the same command again; nothing already written is lost.",
)
_NO_FOLDER = (
    "A file stands where a folder must be.",
    "Name another folder, or move the file away.",
)
_CAUSES = {
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.ENOTDIR: _NO_FOLDER,
    errno.EEXIST: _NO_FOLDER,
    errno.ENOENT: (
        "A folder of its path is gone, or a link leads nowhere (to a disk that isn't there?).",
        "Look where the path leads, then run the command again.",
    ),
    errno.ENAMETOOLONG: (
        "The name is too long for this disk: most allow 255 bytes, and Hangul takes 3 a syllable.",
        "Take a shorter name.",
    ),
    errno.EROFS: ("The disk can be read only.", "Name a folder on another disk."),
}


def cant_write(path: pathlib.Path, error: OSError) -> CantWrite:
    """Make the error that says why ``path`` could not be written."""
    why, fix = _CAUSES.get(error.errno) or (
        f"{error.strerror}: {path.parent.name or path.parent}.",
        "Check who owns the folder and that it is writable, then run the command again.",
    )
    return CantWrite(f"{path.name[:60]} could not be written.", why, fix)


def write(path: pathlib.Path, data: str | bytes | Iterable[bytes]) -> None:
    """Write a file atomically: after a crash it holds the old content or the new, never a part.

    Missing parent folders are made. ``data`` is the whole content, or pieces of it in order; text
    is written as UTF-8, as it is.

    Raises:
        CantWrite: The disk is full, or the folder is not writable.
    """
    data = data.encode() if isinstance(data, str) else data
    pieces = [data] if isinstance(data, bytes) else data
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(
            dir=path.parent, prefix=f".{path.name}.", delete=False
        ) as file:
            temporary = pathlib.Path(file.name)
            file.writelines(pieces)
            file.flush()
            os.fsync(file.fileno())
        # A temporary file is private to its owner; a file of the course is as readable as others.
        mask = os.umask(0)
        os.umask(mask)
        temporary.chmod(path.stat().st_mode if path.exists() else 0o666 & ~mask)
        temporary.replace(path)
    except BaseException as error:  # Ctrl-C, too, leaves nothing half-written
        if temporary is not None:
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise cant_write(path, error) from error
        raise
