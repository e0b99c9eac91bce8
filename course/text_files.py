"""Plain text: a document on each line. Read as it is, or unpacked into the cache of ``datasets``.

A file is read some megabytes at a time, from its start for each shard: a plain text on this disk
needs no copy, so thousands of small files take no longer than one large one.
"""

import dataclasses
import functools
import hashlib
import pathlib
from collections.abc import Iterator
from typing import BinaryIO

import fsspec
import pyarrow

from course.hub import datasets
from course.kinds import Kind
from helpers.base import files
from helpers.base.errors import CourseError
from helpers.base.folders import is_remote
from helpers.text.documents import LONGEST, cut

BLOCK = 2**22  # bytes that are read at a time


@dataclasses.dataclass(frozen=True)
class TextFile:
    """A text that this machine can read."""

    path: pathlib.Path  # the text itself, or a copy in the cache
    version: str  # of the original: another one when that changes
    state: str  # of ``path`` when it was found


@functools.cache
def open_text(path: str, kind: Kind) -> TextFile:
    """Find a text, and unpack or fetch it where that is needed; errors of any storage."""
    if is_remote(path):
        origin = datasets.data_files.DataFilesList.from_patterns([path])
        version = str(origin.origin_metadata)
    else:
        version = file_state(pathlib.Path(path))
        if kind.compression is None:
            return TextFile(pathlib.Path(path), version, version)
    copy = _copy(path, kind, version)
    return TextFile(copy, version, file_state(copy))


def file_state(path: pathlib.Path) -> str:
    """Give another text when a file was written or exchanged."""
    status = path.stat()
    # Archives set the time of change back, but nobody the time at which the file came here.
    return f"{status.st_ino} {status.st_size} {status.st_ctime_ns}"


def _copy(path: str, kind: Kind, version: str) -> pathlib.Path:
    """Write a text to the cache as it is without compression, if it isn't there."""
    key = hashlib.sha256(f"{path}\0{version}".encode()).hexdigest()[:32]
    copy = pathlib.Path(datasets.config.HF_DATASETS_CACHE) / "tpu-course-texts" / f"{key}.txt"
    if not copy.exists():
        with fsspec.open(path, "rb", compression=kind.compression) as file:
            pieces = iter(functools.partial(file.read, BLOCK), b"")
            try:
                files.write(copy, pieces)
            except files.CantWrite as error:
                raise CourseError(
                    f"The text {path.rpartition('/')[2]} can't be read.",
                    f"It can't be unpacked into the cache of datasets: {error.why}",
                    "Make room, or set HF_DATASETS_CACHE to a folder that you may write to.",
                ) from error
    return copy


def read_texts(text: TextFile) -> Iterator[pyarrow.Array]:
    """Give the lines of a text, some thousand at a time.

    Raises:
        UnicodeDecodeError: It is not UTF-8.
        CourseError: It is empty, or was changed while it was read.
    """
    is_empty = True
    with text.path.open("rb") as file:
        for lines in _complete_lines(file):
            is_empty = False
            content = lines.decode("utf-8").removesuffix("\n")
            yield pyarrow.array(content.split("\n"), pyarrow.string())
    if file_state(text.path) != text.state:
        raise CourseError(
            f"The text {text.path.name} was changed meanwhile.",
            "Records of the old text and of the new one would be mixed.",
            "Run the same command again once it no longer changes, with another folder for output.",
        )
    if is_empty:
        raise CourseError(
            f"The text {text.path.name} can't be read.",
            "It is empty.",
            "If it should have text, it was cut off: copy it again. Else leave it out.",
        )


def _complete_lines(file: BinaryIO) -> Iterator[bytes]:
    """Give blocks that end where a line does, or a document that is cut."""
    remainder = b""
    while block := file.read(BLOCK):
        if block.endswith(b"\r"):  # a newline may follow, and belong to it
            block += file.read(1)
        block = block.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        end = block.rfind(b"\n") + 1
        if end:
            yield remainder + block[:end]
            remainder = b""
        remainder += block[end:]
        # Of a line that goes on, all pieces but the last are complete.
        if len(remainder) > LONGEST:
            *pieces, remainder = cut(remainder)
            yield from pieces
    if remainder:
        yield remainder
