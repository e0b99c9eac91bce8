"""Files that are whole or absent."""

import contextlib
import glob
import hashlib
import os
import pathlib
import secrets
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator

import psutil

from helpers.base.errors import CourseError, cause
from helpers.base.processes import variables_set
from tpu_preflight.files import replace
from tpu_preflight.processes import kill


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


def beside(path: pathlib.Path) -> pathlib.Path:
    """Name what is on its way to ``path``: hidden, with this process's number."""
    return path.with_name(f".{path.name}.{os.getpid():08x}{secrets.token_hex(4)}")


def leftovers(path: pathlib.Path) -> list[pathlib.Path]:
    """Find what killed processes left of a file or folder, named by `beside`."""
    named = path.parent.glob(f".{glob.escape(path.name)}." + "[0-9a-f]" * 16)
    return [each for each in named if not psutil.pid_exists(int(each.name[-16:-8], 16))]


@contextlib.contextmanager
def temporary() -> Iterator[None]:
    """Have a folder of this process's own for all temporary files, which goes with the block.

    What a process left that was killed goes before: such a folder, and who has it for his.
    """
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # no room: then without
            path = pathlib.Path(tempfile.gettempdir(), "tpu-course")
            for left in leftovers(path):
                each = psutil.process_iter(["environ"])
                kill(x for x in each if (x.info["environ"] or {}).get("TMPDIR") == str(left))
                shutil.rmtree(left, ignore_errors=True)
            (own := beside(path)).mkdir(0o700)
            stack.callback(shutil.rmtree, own, ignore_errors=True)
            stack.enter_context(variables_set({"TMPDIR": str(own)}))
            stack.enter_context(variables_set({"tempdir": str(own)}, vars(tempfile)))
        yield


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
