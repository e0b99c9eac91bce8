"""Texts out of each kind of file: plain text, JSON lines, Parquet, a Hugging Face dataset."""

import contextlib
import itertools
import json
import pathlib
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from typing import Any, BinaryIO

from helpers.base.errors import CourseError
from helpers.text import corpus
from helpers.text.sources.streams import BUFFER, files_at, stream

ROWS = 256  # of Parquet, decoded at once

Texts = Iterator[tuple[str, str]]  # where in the file, such as "line 12", and the text


def plain(file: BinaryIO, name: str) -> Texts:
    """Read plain text: each line that is not blank is a document."""
    for number, line in corpus.lines(file, name):
        yield f"line {number:,}", line


def json_lines(file: BinaryIO, name: str, field: str) -> Texts:
    """Read a field of JSON objects, one per line; null is a text without characters."""
    for number, line in corpus.lines(file, name):
        where = f"line {number:,}"
        try:
            found = json.loads(line)
        except (ValueError, RecursionError) as error:
            column = f" at character {error.colno:,}" if hasattr(error, "colno") else ""
            raise CourseError(
                f"The text {name}, {where}, is no JSON.",
                f"{getattr(error, 'msg', 'Nested too deeply')}{column}.",
                "Each line must be one object: mend this one. If it is the last, the file was "
                "cut off: copy it again.",
            ) from None
        if not isinstance(found, dict) or field not in found:
            has = fields(found) if isinstance(found, dict) else f"a {_type(found)}, no object"
            raise no_field(name, where, field, has)
        yield where, _text(found[field], name, where, field)


def parquet(
    address: str, compression: str | None, name: str, field: str, done: Callable[[int], None]
) -> Texts:
    """Read a column of a table in Parquet; null is a text without characters."""
    import pyarrow

    with _table(address, compression, name) as table:
        check_column(table, name, field)
        rows, system, path = table.metadata.num_rows, *files_at(address)
        size, at = system.size(path) or 0, 0
        batches = table.iter_batches(ROWS, columns=[field], use_threads=False)
        try:
            for batch in batches:
                for row, value in enumerate(batch.column(0), at):
                    where = f"row {row + 1:,}"
                    yield where, _text(_decoded(value, name, where), name, where, field)
                done(size * (at + len(batch)) // rows - size * at // rows)
                at += len(batch)
        except pyarrow.ArrowException as error:
            raise _damaged(name, f"After row {at:,}: {error}") from error


@contextlib.contextmanager
def _table(address: str, compression: str | None, name: str) -> Iterator[Any]:
    """Open a table; one that is compressed as a whole is unpacked to a temporary file."""
    import pyarrow
    from pyarrow.parquet import ParquetFile

    with contextlib.ExitStack() as stack:
        if compression:
            packed = stack.enter_context(stream(address, compression, lambda _: None))
            file = stack.enter_context(tempfile.TemporaryFile())
            shutil.copyfileobj(packed, file)
        else:
            system, path = files_at(address)
            file = stack.enter_context(system.open(path, "rb"))
        try:
            # Pages, not row groups, are in memory. pre_buffer, the default, reads whole row groups
            # (apache/arrow#39820, 2024-01) and kept them: 188 MB of a file of 175 MB, now 41.
            table = ParquetFile(file, buffer_size=BUFFER, pre_buffer=False)
        except (pyarrow.ArrowException, OSError) as error:
            raise _damaged(name, str(error)) from error
        yield table


def check_table(address: str, name: str, field: str) -> None:
    """Look whether a table is whole and has the column."""
    with _table(address, None, name) as table:
        check_column(table, name, field)


def check_column(table: Any, name: str, field: str) -> None:
    """Look for a column of text, with at least one row.

    Raises:
        CourseError: There is none.
    """
    import pyarrow

    if not table.metadata.num_rows:
        raise CourseError(
            f"The text {name} is empty.", "The table has no row.", "Choose another file."
        )
    schema = table.schema_arrow
    if field not in schema.names:
        raise no_field(name, "a table in Parquet", field, fields(schema.names))
    found = schema.field(field).type
    if pyarrow.types.is_dictionary(found):
        found = found.value_type
    if not (pyarrow.types.is_string(found) or pyarrow.types.is_large_string(found)):
        raise _no_text(name, "a table in Parquet", field, str(found))


def dataset(name: str, part: tuple[int, int]) -> Any:
    """Open a part of a Hugging Face dataset to be streamed; (2, 8) is the third of eight files.

    ``name`` is ``hf://NAME/CONFIG/SPLIT``; NAME is that on the Hub, or a folder's path.

    Raises:
        CourseError: The Hub can't be reached, or has no such dataset, configuration or split.
    """
    if not (found := re.fullmatch(r"hf://(.+)/([^/]+)/([^/]+)", name)):
        raise CourseError(
            f"{name!r} can't be understood.",
            "A Hugging Face dataset has a name, a configuration and a split.",
            "Write hf://NAME/CONFIG/SPLIT, such as hf://wikimedia/wikipedia/20231101.ko/train; "
            "many datasets call their only configuration default.",
        )
    path, config, split = found.groups()
    if not pathlib.Path(path).is_dir():
        corpus.reach_hub(path)
    import datasets

    with _loading(name):
        streamed = datasets.load_dataset(path, config, split=split, streaming=True)
        return streamed.shard(part[1], part[0]) if part[1] > 1 else streamed


@contextlib.contextmanager
def _loading(name: str) -> Iterator[None]:
    try:
        yield
    except CourseError:
        raise
    except Exception as error:  # of datasets, of the Hub, and of whatever reads its files
        raise CourseError(
            f"{name} can't be loaded.",
            f"{type(error).__name__}: {str(error).strip()[:300]}",
            "Copy name, configuration and split from the dataset's page, and check the network.",
        ) from error


def rows(streamed: Any, name: str, field: str) -> Texts:
    """Read a field of a dataset's rows; None is a text without characters."""
    with _loading(name):
        for row, found in enumerate(streamed):
            where = f"row {row + 1:,}"
            if field not in found:
                raise no_field(name, where, field, fields(found))
            yield where, _text(found[field], name, where, field)


# Half of a surrogate pair: JSON can hold one, UTF-8 can't.
_HALF = re.compile("[\ud800-\udfff]")


def _text(value: Any, name: str, where: str, field: str) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise _no_text(name, where, field, f"a {_type(value)}")
    return value if value.isascii() else _HALF.sub(corpus.REPLACED, value)


def _decoded(value: Any, name: str, where: str) -> str | None:
    try:
        return value.as_py()
    except UnicodeDecodeError as error:
        raise corpus.NotUtf8(
            f"The text {name}, {where}, is not UTF-8.",
            f"Byte 0x{error.object[error.start]:02x} ({error.reason}).",
            "It was written by a program that doesn't check: write the table again.",
        ) from None


def fields(names: Iterable[str]) -> str:
    """Name the first fields there are."""
    first = [repr(name) for name in itertools.islice(names, 9)]
    return f"the field{'s' * (len(first) != 1)} {', '.join(first)}" if first else "no field"


def no_field(name: str, where: str, field: str, has: str) -> CourseError:
    """Make the error for an object or a table without the field."""
    fix = "Name the field with the text: --field NAME."
    return CourseError(f"The text {name}, {where}, has no field {field!r}.", f"It has {has}.", fix)


def _no_text(name: str, where: str, field: str, kind: str) -> CourseError:
    what = f"The text {name}, {where}: the field {field!r} is no text."
    return CourseError(what, f"It is {kind}.", "Name the field with the text: --field NAME.")


def _damaged(name: str, why: str) -> CourseError:
    return CourseError(
        f"The text {name} is a damaged table in Parquet.",
        f"{why.strip().rstrip('.')[:300]}.",
        "A download or a copy probably stopped early: copy it again.",
    )


_TYPES = {bool: "truth value", int: "number", float: "number", list: "list", str: "string"}


def _type(value: Any) -> str:
    return _TYPES.get(type(value), "object" if isinstance(value, dict) else type(value).__name__)
