"""The bytes of a file here or in a bucket, unpacked, and what can be wrong with them."""

import contextlib
import io
import logging
import lzma
import zlib
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

from helpers.base.errors import CourseError
from helpers.base.folders import is_remote

BUFFER = 2**20
START = 2**16  # bytes at a file's start that tell its kind


def files_at(address: str) -> tuple[Any, str]:
    """Give fsspec's file system for a path or an address, and the path in it."""
    import fsspec

    if not is_remote(address):
        return fsspec.filesystem("file"), address
    logging.getLogger("gcsfs").setLevel(logging.CRITICAL)  # it logs what is raised here, too
    return fsspec.core.url_to_fs(address, use_listings_cache=False)


class _Counted(io.RawIOBase):
    """A file that tells how many bytes of it were read."""

    def __init__(self, file: Any, done: Callable[[int], None]) -> None:
        self._file, self._done = file, done

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._file.read(len(buffer))
        buffer[: len(data)] = data
        self._done(len(data))
        return len(data)


def _unpacked(packed: BinaryIO, compression: str) -> BinaryIO:
    if compression == "zstd":  # fsspec knows it only with another package
        import pyarrow

        return io.BufferedReader(pyarrow.CompressedInputStream(packed, "zstd"), START)
    from fsspec.compression import compr

    return compr[compression](packed, mode="rb")


@contextlib.contextmanager
def stream(
    address: str, compression: str | None, done: Callable[[int], None], buffer: int = BUFFER
) -> Iterator[BinaryIO]:
    """Open a file (``gs://…``, too) to be read once from its start, ``buffer`` bytes at a time.

    ``compression`` is ``gzip``, ``bz2``, ``xz``, ``zstd`` or None; ``done`` is called with the
    number of bytes just read, as they are stored.
    """
    system, path = files_at(address)
    options = {"block_size": buffer} if is_remote(address) else {}
    with system.open(path, "rb", **options) as file:
        data = io.BufferedReader(_Counted(file, done), buffer)
        if compression:
            data = _unpacked(data, compression)
        yield data


@contextlib.contextmanager
def failures(name: str, compression: str | None, remote: bool, where: list[str]) -> Iterator[None]:
    """Say in one way what can't be read or unpacked of the file with this name.

    What reads a ``remote`` file has errors of its own. The last entry of ``where`` says how far
    reading came, such as ``line 12``.

    Raises:
        CourseError: For whatever else is raised inside.
    """
    try:
        yield
    except CourseError:
        raise
    except (EOFError, zlib.error, lzma.LZMAError) as error:
        raise _damaged(name, compression, where[-1], error) from error
    except OSError as error:
        if compression and error.errno is None and not remote:
            raise _damaged(name, compression, where[-1], error) from error
        raise _unreadable(name, error) from error
    except Exception as error:
        if not remote:
            raise
        raise _unreadable(name, error) from error


def _damaged(name: str, compression: str | None, where: str, error: Exception) -> CourseError:
    cut = isinstance(error, EOFError) or "runcated" in str(error)
    return CourseError(
        f"The text {name} is {'cut off' if cut else 'damaged'}.",
        f"After {where}, {compression} can't be unpacked further: {str(error).rstrip('.')}.",
        "A download or a copy probably stopped early: copy it again."
        if cut
        else "Copy it again, or choose another file.",
    )


def _unreadable(name: str, error: Exception) -> CourseError:
    if isinstance(error, OSError) and error.strerror:
        why = f"{error.strerror}."
    else:
        why = f"{type(error).__name__}: {str(error).strip()[:300]}"
    return CourseError(
        f"The text {name} can't be read.", why, "Check who owns the file, and that you may read it."
    )
