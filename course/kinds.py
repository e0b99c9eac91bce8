"""What a file is: told by its first bytes, and by its name where bytes can't tell."""

import codecs
import contextlib
import dataclasses
import json
import pathlib
import re

import fsspec

from helpers.base.errors import CourseError
from helpers.base.folders import is_remote

_FIRST_BYTES = 2**20
_COMPRESSIONS = {  # by the expression of the bytes that a file begins with, as fsspec names them
    rb"\x1f\x8b": "gzip",
    rb"BZh[1-9]1AY&SY": "bz2",
    rb"\xfd7zXZ\x00": "xz",
}
_REFUSED = {
    rb"PK(\x03\x04|\x05\x06|\x07\x08)": "an archive (zip), or a document of an office program",
    rb"7z\xbc\xaf\x27\x1c": "an archive (7z)",
    rb"Rar!\x1a\x07": "an archive (rar)",
    rb"(?s).{257}ustar": "an archive (tar)",
    rb"\x28\xb5\x2f\xfd": "compressed by Zstandard (zst)",
    rb"\x04\x22\x4d\x18": "compressed by LZ4",
    rb"%PDF-": "a PDF",
    rb"ARROW1": "an Arrow file",
    rb"SQLite format 3": "a database",
}
_FORMATS = {".json": "json", ".jsonl": "json", ".ndjson": "json", ".parquet": "parquet"}
_TABLES = (".csv", ".tsv", ".xls", ".xlsx")


@dataclasses.dataclass(frozen=True)
class Kind:
    """How a file is read."""

    format: str  # "text" (a document on each line), "json" (lines) or "parquet"
    compression: str | None  # "gzip", "bz2" or "xz"


def find_kind(path: str) -> Kind:
    """Look into a file, here or at an address.

    Raises:
        CourseError: It is none that documents can be read from.
        OSError, ValueError, EOFError: It can't be read; those of the library of its storage.
    """
    beginning = _read_beginning(path, None)
    compression = _match(_COMPRESSIONS, beginning)
    if compression:
        beginning = _read_beginning(path, compression)
    beginning = beginning.removeprefix(codecs.BOM_UTF8)
    if beginning and not beginning.strip(b"\0"):
        raise ValueError("it begins with zeros, as a file that didn't arrive whole")
    ending = _ending(path)
    file_format = _FORMATS.get(ending, "text")
    if beginning.startswith(b"PAR1"):
        file_format = "parquet"
    refused = _match(_REFUSED, beginning)
    if _match(_COMPRESSIONS, beginning):
        refused = "compressed twice"
    if file_format == "text" and not refused:
        if ending in _TABLES:
            refused = "a table"
        elif re.match(rb'\[?\{"', beginning):
            refused = "JSON"
    if refused:
        raise CourseError(
            f"The text {_name(path)} can't be used.",
            f"It is {refused}, and each of its lines would be a document.",
            "Unpack an archive and name its folder; unpack what is compressed otherwise than by "
            "gzip, bz2 or xz. Name JSON lines .jsonl; of a table make them: "
            "pandas.read_csv(FILE).to_json('NEW.jsonl', orient='records', lines=True).",
        )
    # English in UTF-16 without a mark: half of its bytes are zeros, and UTF-8 allows those.
    if file_format == "text" and beginning.count(b"\0") > len(beginning) / 10:
        raise CourseError(
            f"The text {_name(path)} can't be read.",
            "Between its letters are zeros: it is UTF-16 without a mark, or no text.",
            "Write it in UTF-8: `iconv -f UTF-16LE -t UTF-8 FILE > NEW`.",
        )
    if file_format == "json":
        _check_depth(beginning)
    return Kind(file_format, compression)


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _ending(path: str) -> str:
    """Give a name's ending without that of its compression, in small letters."""
    name = re.sub(r"\.(gz|bz2|xz)$", "", _name(path).lower())
    return pathlib.PurePath(name).suffix


def _read_beginning(path: str, compression: str | None) -> bytes:
    # Opened, a pipe would wait for its other end.
    if not is_remote(path) and not pathlib.Path(path).is_file():
        raise FileNotFoundError(f"{_name(path)} is not a file")
    with fsspec.open(path, "rb", compression=compression) as file:
        return file.read(_FIRST_BYTES)


def _match(expressions: dict[bytes, str], beginning: bytes) -> str | None:
    for expression, name in expressions.items():
        if re.match(expression, beginning):
            return name
    return None


def _check_depth(beginning: bytes) -> None:
    """Raise a `RecursionError` for what is nested too deeply: pyarrow would crash."""
    for line in beginning.splitlines():
        with contextlib.suppress(ValueError):
            json.loads(line)
