"""Earlier answers of the compiler, kept in the user's cache folder."""

import contextlib
import gzip
import hashlib
import hmac
import os
import pathlib
import platform
import zlib
from json import dumps, loads
from typing import Any

import platformdirs

from tpu_preflight import files
from tpu_preflight.processes import Answer

MOST_BYTES = 256_000_000
_FORMAT = 6  # changes when entries of the cache change their meaning


def folder() -> pathlib.Path:
    """Find the folder by this system's rules (XDG on Linux); it may not exist yet."""
    return platformdirs.user_cache_path("tpu-preflight")


def key(hlo: bytes, job: dict[str, Any], versions: dict[str, str]) -> str:
    """Name the entry of a question: the module, what else is asked, versions, libtpu's flags."""
    flags = os.environ.get("LIBTPU_INIT_ARGS", "")
    # The kind of machine, too: a home folder on a network may be that of several.
    question = dumps([_FORMAT, job, versions, platform.machine(), flags], sort_keys=True)
    return hashlib.sha256(question.encode() + hlo).hexdigest()


def read(key: str) -> Answer | None:
    """Read an entry; one that is damaged, or wasn't written for this key, is as good as none."""
    path = folder() / key
    with contextlib.suppress(OSError, EOFError, ValueError, zlib.error):
        seal, message, text = gzip.decompress(path.read_bytes()).split(b"\n", 2)
        if seal == _seal(key, message + text):
            path.touch()  # the oldest go first
            return loads(message), text
    return None


def write(key: str, answer: Answer) -> None:
    """Keep an answer and make room; without room on the disk, the next time asks again."""
    message, text = answer
    message = dumps(message).encode()
    data = b"\n".join([_seal(key, message + text), message, text])
    with contextlib.suppress(OSError):
        files.replace(folder() / key, [gzip.compress(data, 1, mtime=0)])
        _make_room()


def _seal(key: str, data: bytes) -> bytes:
    # No secret: it finds an entry that was cut off or renamed. The folder is the user's own.
    return hmac.digest(key.encode(), data, "sha256").hex().encode()


def _make_room() -> None:
    """Remove the entries that were used longest ago, until the rest fits.

    That includes what a killed process left half-written.
    """
    entries = []
    for path in folder().glob(f"*{'[0-9a-f]' * 64}*"):
        status = path.stat()
        entries.append((status.st_mtime, status.st_size, path))
    entries.sort(key=lambda entry: entry[0], reverse=True)
    total = 0
    for _, size, path in entries:
        # The newest fit; from the first that doesn't on, all are removed.
        total += size
        if total > MOST_BYTES:
            path.unlink(missing_ok=True)
