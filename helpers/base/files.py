"""Files that are whole or absent."""

import glob
import pathlib
from collections.abc import Iterable

from helpers.base.errors import CourseError, cause
from tpu_preflight.files import replace


class CantWrite(CourseError):
    """A file could not be written; what stood there before is untouched."""


def cant_write(path: pathlib.PurePath, error: Exception) -> CantWrite:
    """Make the error that says why ``path``, here or in a bucket, could not be written."""
    return CantWrite(
        f"{path.name[:60]} could not be written.",
        f"{cause(error)} ({path.parent.name or path.parent}).",
        "Make room there, or name another folder or bucket that you may write to, then run the "
        "same command again; nothing already written is lost.",
    )


def leftovers(path: pathlib.Path) -> Iterable[pathlib.Path]:
    """Find what killed processes left of a file or folder; a backup or a swap file isn't ours."""
    return path.parent.glob(f".{glob.escape(path.name)}." + "[0-9a-f]" * 8)


def write(path: pathlib.Path, data: str | bytes | Iterable[bytes]) -> None:
    """Replace a file by the whole content, or by pieces of it in order: whole or absent.

    Missing parent folders are made, text is written as UTF-8. Raises `CantWrite`.
    """
    data = data.encode() if isinstance(data, str) else data
    try:
        replace(path, [data] if isinstance(data, bytes) else data)
    except OSError as error:
        raise cant_write(path, error) from error
