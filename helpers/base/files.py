"""Files that are whole or absent."""

import errno
import pathlib
from collections.abc import Iterable

from helpers.base.errors import CourseError
from tpu_preflight.files import replace


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
    """Replace a file by the whole content, or by pieces of it in order: whole or absent.

    Missing parent folders are made. Text is written as UTF-8, as it is.

    Raises:
        CantWrite: The disk is full, or the folder is not writable.
    """
    data = data.encode() if isinstance(data, str) else data
    try:
        replace(path, [data] if isinstance(data, bytes) else data)
    except OSError as error:
        raise cant_write(path, error) from error
