"""Files that are whole or absent."""

import os
import pathlib
import secrets
import shutil
from collections.abc import Iterable


def replace(path: pathlib.Path, pieces: Iterable[bytes]) -> None:
    """Write a file atomically: after a crash it holds the old content or the new, never a part.

    Missing parent folders are made; a file that stood there passes on its mode.

    Raises:
        OSError: As the system gave it; what stood there is untouched.
    """
    (path := path.resolve()).parent.mkdir(parents=True, exist_ok=True)  # a link stays
    temporary = path.with_name(f".{path.name}.{os.getpid():08x}{secrets.token_hex(4)}")
    try:
        with temporary.open("xb") as file:
            file.writelines(pieces)
            file.flush()
            os.fsync(file.fileno())
        if path.exists():
            shutil.copymode(path, temporary)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
