"""Files that are whole or absent."""

import os
import pathlib
import tempfile

from tpu_preflight.errors import PreflightError


def write(path: pathlib.Path, data: str | bytes) -> None:
    """Write a file atomically: after a crash it holds the old content or the new, never a part.

    Missing parent folders are made. Text is written as UTF-8.

    Raises:
        PreflightError: The disk is full, or the folder is not writable.
    """
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(
            dir=path.parent, prefix=f".{path.name}.", delete=False
        ) as file:
            temporary = pathlib.Path(file.name)
            file.write(data.encode() if isinstance(data, str) else data)
            file.flush()
            os.fsync(file.fileno())
        # A temporary file is private to its owner; this one is as readable as others.
        mask = os.umask(0)
        os.umask(mask)
        temporary.chmod(0o666 & ~mask)
        temporary.replace(path)
    except OSError as error:
        raise _refused(path, error) from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


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
