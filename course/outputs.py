"""Files and folders that the commands write: nothing of yours is lost."""

import hashlib
import os
import pathlib
import sys
import time

from helpers.base.errors import CourseError
from helpers.base.files import cant_write, write
from helpers.base.folders import Folder, short


def keep(path: pathlib.Path, data: bytes, folder: pathlib.Path, why: str) -> None:
    """Write what a file holds to a folder of the time within ``folder``; say where, and why."""
    copy = folder / time.strftime("%Y-%m-%d %H.%M.%S") / path.parent.name / path.name
    write(copy, data)
    sys.stderr.write(f"{path.name} {why}; as it was: {copy}\n")


def write_own(path: pathlib.Path, data: str | bytes, earlier: pathlib.Path) -> None:
    """Write a file as `write` does; one that was changed by hand since is kept in ``earlier``.

    That folder holds a digest of what was written here last, too.
    """
    if isinstance(data, str):
        data = data.encode()
    note = earlier / ".written" / path.parent.name / path.name
    try:
        # A file that isn't there is as good as the new one: there is nothing to keep.
        current = path.read_bytes() if path.exists() else data
        digest = note.read_bytes() if note.exists() else b""
    except OSError as error:
        raise cant_write(path, error) from error
    if current != data and hashlib.sha256(current).digest() != digest:
        why = "was not as written here last" if digest else "is written anew"
        keep(path, current, earlier, why)
    # The file before its note: after a kill between them, the file is what is to be written.
    write(path, data)
    write(note, hashlib.sha256(data).digest())


def new_folder(path: str | os.PathLike[str]) -> pathlib.Path:
    """Check a folder of this machine that is to be made whole: absent or empty.

    Raises `CourseError`: It is in a bucket or not empty, or as `Folder.check`.
    """
    folder = Folder(path)
    if folder.remote:
        raise CourseError(
            f"{folder.path[:60]!r} is no folder of this machine.",
            "A folder can be whole or absent on a disk; a bucket has no folders.",
            "Write to a folder here, then copy it: gcloud storage cp -r FOLDER gs://….",
        )
    folder.check()
    local_path = pathlib.Path(folder.path)
    # A folder is put in its place whole: a shell in the old one would stand in what is gone.
    is_current = local_path.absolute() == pathlib.Path.cwd()
    if folder.list() or local_path.is_symlink() or is_current:
        raise CourseError(
            f"{short(folder.path)} is not empty, is a link, or is the current folder.",
            "What is in it would be lost, or mixed with the new files.",
            "Name another folder, or remove this one first.",
        )
    return local_path
