"""Files that are whole or absent."""

import pathlib
from collections.abc import Iterable

from helpers.base.errors import CourseError, cause
from helpers.base.processes import leftovers
from tpu_preflight.files import replace


class CantWrite(CourseError):
    """A file could not be written; what stood there before is untouched."""


def cant_write(path: pathlib.PurePath, error: Exception) -> CantWrite:
    """Make the error that says why ``path``, here or in a bucket, could not be written."""
    return CantWrite(
        f"{path.name[:60]} could not be written.",
        f"{cause(error)} ({path.parent.name or path.parent}).",
        "Set that right, or name another folder or bucket that you may write to, and run the same "
        "command again; nothing already written is lost.",
    )


def write(path: pathlib.Path, data: str | bytes | Iterable[bytes]) -> None:
    """Replace a file by the whole content, or by pieces of it in order: whole or absent.

    Missing parent folders are made, text is written as UTF-8. Raises `CantWrite`.
    """
    data = data.encode() if isinstance(data, str) else data
    try:
        for left in leftovers(path.resolve()):
            left.unlink(missing_ok=True)
        replace(path, [data] if isinstance(data, bytes) else data)
    except OSError as error:
        raise cant_write(path, error) from error
