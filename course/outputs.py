"""Files and folders that the commands write: nothing of yours is lost."""

import hashlib
import os
import pathlib
import sys
import time

from helpers.base.errors import CourseError
from helpers.base.files import cant_write, write
from helpers.base.folders import Folder, short

TEMPLATES = pathlib.Path(__file__).with_name("templates")


def keep(path: pathlib.Path, data: bytes, kept: pathlib.Path, why: str) -> None:
    """Write what a file holds to the folder ``kept``, below the time; say where, and why."""
    there = kept / time.strftime("%Y-%m-%d %H.%M.%S") / path.parent.name / path.name
    write(there, data)
    sys.stderr.write(f"{path.name} {why}; as it was: {there}\n")


def write_own(path: pathlib.Path, data: str | bytes, kept: pathlib.Path) -> None:
    """Write a file as `write` does; one that isn't what was written there last stays in ``kept``.

    That folder holds what was changed by hand since, and a digest of what was written.
    """
    data = data.encode() if isinstance(data, str) else data
    note = kept / ".written" / path.parent.name / path.name
    try:
        before = path.read_bytes() if path.exists() else data
        known = note.read_bytes() if note.exists() else b""
    except OSError as error:
        raise cant_write(path, error) from error
    if before != data and hashlib.sha256(before).digest() != known:
        keep(path, before, kept, "was not as written here last" if known else "is written anew")
    write(path, data)
    write(note, hashlib.sha256(data).digest())


def new_folder(path: str | os.PathLike[str]) -> pathlib.Path:
    """Check a folder of this machine that is to be made whole: absent or empty.

    Raises `CourseError`: It is in a bucket or not empty, or as `Folder.check`.
    """
    there = Folder(path)
    if there.remote:
        raise CourseError(
            f"{there.path[:60]!r} is no folder of this machine.",
            "A folder can be whole or absent on a disk; a bucket has no folders.",
            "Write to a folder here, then copy it: gcloud storage cp -r FOLDER gs://….",
        )
    there.check()
    here = pathlib.Path(there.path)
    if there.list() or here.is_symlink() or here.absolute() == pathlib.Path.cwd():
        raise CourseError(
            f"{short(there.path)} is not empty, is a link, or is the current folder.",
            "What is in it would be lost, or mixed with the new files.",
            "Name another folder, or remove this one first.",
        )
    return here
