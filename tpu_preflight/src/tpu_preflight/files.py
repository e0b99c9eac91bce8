"""Files that are whole or absent."""

import os
import pathlib
import secrets
import shutil
from collections.abc import Iterable


def replace(path: pathlib.Path, pieces: Iterable[bytes]) -> None:
    """Write a file atomically: after a crash it holds the old content or the new, never a part.

    Missing parent folders are made; the file's mode stays. Of a symbolic link, the file that it
    leads to is replaced.

    Args:
        path: The file, which may not exist yet.
        pieces: Its content, written one after the other.

    Raises:
        OSError: As the system gave it; the old file is untouched.
    """
    path = path.resolve()  # a link stays
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid():08x}{secrets.token_hex(4)}")
    try:
        with temporary.open("xb") as file:
            file.writelines(pieces)
            file.flush()
            # On disk before it has the name: else a crash could leave an empty file.
            os.fsync(file.fileno())
        if path.exists():
            shutil.copymode(path, temporary)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
