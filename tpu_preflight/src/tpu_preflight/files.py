"""Files that are whole or absent."""

import os
import pathlib
import secrets
import shutil
import tempfile
from collections.abc import Iterable

from tpu_preflight.errors import PreflightError


def replace(path: pathlib.Path, pieces: Iterable[bytes]) -> None:
    """Write a file atomically: after a crash it holds the old content or the new, never a part.

    Missing parent folders are made; a file that stood there passes on its mode.

    Raises:
        OSError: As the system gave it; what stood there is untouched.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
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


def write(path: pathlib.Path, data: str | bytes) -> None:
    """Replace a file by ``data``; text is written as UTF-8.

    Raises:
        PreflightError: The disk is full, or the folder is not writable.
    """
    try:
        replace(path, [data.encode() if isinstance(data, str) else data])
    except OSError as error:
        raise _refused(path, error) from error


def _refused(path: pathlib.Path, error: OSError) -> PreflightError:
    return PreflightError(
        f"{path.name[:60]} could not be written.",
        f"{error.strerror}: {path.parent}.",
        "Name a folder that is writable, on a disk with room; what stood there is untouched.",
    )


def check(path: pathlib.Path, suffix: str) -> None:
    """Raise now what `write` would raise later; nothing is left there.

    Raises:
        PreflightError: The name ends otherwise (it may be something of yours that would be
            overwritten), it is a folder's, or nothing can be written there.
    """
    if path.is_dir() or path.suffix.lower() != suffix:
        raise PreflightError(
            f"{path} is a folder." if path.is_dir() else f"{path} doesn't end in {suffix}.",
            "One file is written there, and what has its name would be lost.",
            f"Name a file such as report{suffix}.",
        )
    folder = next(parent for parent in path.absolute().parents if parent.exists())
    try:
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise _refused(path, error) from error
