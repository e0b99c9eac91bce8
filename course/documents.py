"""Documents of files of any common kind, here, in a bucket or on the Hugging Face Hub.

Plain text is read as it is (`course.text_files`). For JSON lines and Parquet ``datasets`` makes
Arrow files in its cache; each shard reads these from their start, some thousand rows at a time.
"""

import collections
import contextlib
import dataclasses
import errno
import functools
import glob
import os
import pathlib
import re
from collections.abc import Iterator, Mapping, Sequence

import fsspec
import pyarrow

from course.hub import datasets
from course.kinds import Kind, find_kind
from course.text_files import file_state, open_text, read_texts
from helpers.base.errors import CourseError, cause
from helpers.base.folders import Folder, is_remote
from helpers.text.documents import Source


@dataclasses.dataclass(frozen=True)
class Files(Source):
    """Documents in files, which `find` finds."""

    paths: tuple[str, ...]  # here, ``gs://…`` or ``hf://datasets/…``
    field: str = "text"  # what holds the text in JSON lines and Parquet
    # How many files were passed over in the folders that were named, by the reason.
    left_out: Mapping[str, int] = dataclasses.field(default_factory=dict, compare=False)

    def files(self) -> Iterator[Iterator[pyarrow.Array]]:
        """Give the texts of each file, some thousand at a time."""
        for path in self.paths:
            yield _texts(path, self.field)

    def versions(self) -> list[str]:
        """Tell when each file came, as this process reads it."""
        return [_version(path, self.field) for path in self.paths]


def find(inputs: Sequence[str], field: str = "text", output: str = "") -> Files:
    """Find the files that the inputs name; in whatever order they are named, it is the same.

    A file is Parquet or compressed (gzip, bzip2, xz) by its first bytes, JSON lines if its name
    ends with .json, .jsonl or .ndjson, else plain text, a document on each line.

    Args:
        inputs: Files, folders, patterns such as ``texts/*.gz``, each here, ``gs://…`` or
            ``hf://datasets/…`` (the Hugging Face Hub). Hidden files are passed over.
        field: What holds the text in JSON lines and Parquet.
        output: Where records are written: those of an earlier run are no text.

    Raises `CourseError`: There is no such file.
    """
    for function in (_kind, _arrow_files, open_text):
        function.cache_clear()  # files may have changed since
    matches: set[str] = set()
    left_out: dict[str, str] = {}  # reasons by path
    for given_input in inputs:
        paths, reasons = _matching(given_input)
        matches.update(path.replace("/./", "/") for path in paths)
        left_out |= reasons
    # Records of an earlier run are no text.
    own_records = re.escape(os.path.realpath(output)) + (
        r"/(held-out/)?(shard-[\d-]+-of-\d+|manifest|tokenizer)\.\w+"
    )
    by_real_path = {}  # out/../out, or a link
    for path in sorted(matches):
        real_path = os.path.realpath(path)
        if output and re.fullmatch(own_records, real_path):
            left_out[path] = "records of an earlier run"
        else:
            by_real_path[real_path] = path
    # By name first: then it doesn't count where the folders are.
    paths = sorted(by_real_path.values(), key=lambda path: (path.rpartition("/")[2], path))
    taken = set(paths)
    reasons = [reason for path, reason in left_out.items() if path not in taken]
    return Files(tuple(paths), field, dict(collections.Counter(reasons)))


def _matching(text: str) -> tuple[list[str], dict[str, str]]:
    """Find the files of one input, and the reasons for which others are left out."""
    path = os.path.expanduser(text)  # noqa: PTH111 (a Path would make one slash of two)
    if pathlib.Path(path).is_symlink() and not pathlib.Path(path).exists():
        raise CourseError(
            f"The text {text[:80]} is not there.",
            f"It is a link to {os.readlink(path)}, which doesn't exist.",  # noqa: PTH115
            "Make the link again, or name the file itself.",
        )
    if pathlib.Path(path).exists():
        path = glob.escape(path)  # a file's own name may look like a pattern
    if path.startswith("gs://"):  # first, because the library would wait for minutes for an answer
        bucket, _, name = re.split(r"[*?[]", path[5:])[0].partition("/")
        Folder(f"gs://{bucket}").exists(name or "any")
    # A file or pattern; a folder.
    patterns = [path, f"{path.rstrip('/')}/**"] if path else []
    matches: list[str] = []
    left_out: dict[str, str] = {}
    try:
        for pattern in patterns:
            if matches:
                break
            with contextlib.suppress(FileNotFoundError):
                matches = datasets.data_files.resolve_pattern(pattern, str(pathlib.Path.cwd()))
            if not is_remote(pattern):
                left_out |= _left_out(pattern, matches)
    except Exception as error:  # of the library of each kind of storage
        raise _unreadable(text, error) from error
    if not matches or any("::" in name for name in (path, *matches)):  # fsspec's sign of a chain
        raise CourseError(
            f"The text {text[:80]} is not there.",
            "No file of this name exists, none fits the pattern, the folder has none, or it is a "
            "pipe. A name with :: can't be read.",
            "Check the path; a pattern stands in quotation marks. Write what a pipe gives to a "
            "file; .gz, .bz2 and .xz are read as they are.",
        )
    return matches, left_out


def _left_out(pattern: str, matches: Sequence[str]) -> dict[str, str]:
    """Say why each file of this machine that fits a pattern is not among the matches."""
    reasons = {}
    taken = set(matches)
    absolute = str(pathlib.Path.cwd() / pattern)
    for path, info in fsspec.filesystem("file").glob(absolute, detail=True).items():
        if path in taken or pathlib.Path(path).is_dir():
            continue
        if info.get("islink") and not pathlib.Path(path).exists():
            reasons[path] = "links to nothing"
        elif not pathlib.Path(path).is_file():
            reasons[path] = "pipes or devices"
        elif pathlib.Path(path).name in datasets.data_files.FILES_TO_IGNORE:
            reasons[path] = "README.md and other descriptions of data"
        else:
            reasons[path] = "hidden files"
    return reasons


@functools.cache
def _kind(path: str) -> Kind:
    try:
        return find_kind(path)
    except CourseError:
        raise
    except Exception as error:  # of the library of each kind of storage
        raise _unreadable(path.rpartition("/")[2], error) from error


def _version(path: str, field: str) -> str:
    """Give what changes when a file does, as this process reads it."""
    kind = _kind(path)
    if kind.format != "text":
        return _arrow_files(path, field).version
    try:
        return open_text(path, kind).version
    except CourseError:
        raise
    except Exception as error:  # of the library of each kind of storage
        raise _unreadable(path.rpartition("/")[2], error) from error


@dataclasses.dataclass(frozen=True)
class ArrowFiles:
    """What ``datasets`` made of a file."""

    folder: pathlib.Path  # in its cache (``HF_DATASETS_CACHE``)
    documents: int
    version: str  # of the original


@functools.cache
def _arrow_files(path: str, field: str) -> ArrowFiles:
    """Make Arrow files of JSON lines or Parquet, if they aren't in the cache of ``datasets``."""
    name = path.rpartition("/")[2]
    kind = _kind(path)
    datasets.logging.set_verbosity(datasets.logging.CRITICAL)  # every error is raised
    try:
        # `load_dataset` would also map the files into memory: that counts as this process's memory.
        # Its cache knows a file by its time, which an archive sets; not when it came here.
        state = None
        if not is_remote(path):
            state = file_state(pathlib.Path(path)).replace(" ", "-")
        builder = datasets.load_dataset_builder(kind.format, state, data_files=[glob.escape(path)])
        builder.download_and_prepare()
    except Exception as error:
        raise _unreadable(name, error) from error
    columns = {}
    for column, feature in builder.info.features.items():
        columns[column] = getattr(feature, "dtype", "a structure")
    if columns.get(field) not in ("string", "large_string"):
        raise CourseError(
            f"The text {name} can't be used.",
            f"It has no text in a field {field!r}, but {columns}.",
            "Name the field with the text (--field NAME), or choose another file.",
        )
    return ArrowFiles(
        folder=pathlib.Path(builder.cache_dir),
        documents=builder.info.splits["train"].num_examples,
        version=f"{state} {builder.config.data_files['train'].origin_metadata}",
    )


def _texts(path: str, field: str) -> Iterator[pyarrow.Array]:
    """Give a file's texts."""
    kind = _kind(path)
    if kind.format != "text":
        yield from _arrow_texts(path, field)
        return
    try:
        yield from read_texts(open_text(path, kind))
    except CourseError:
        raise
    except Exception as error:  # of the library of each kind of storage
        raise _unreadable(path.rpartition("/")[2], error) from error


def _arrow_texts(path: str, field: str) -> Iterator[pyarrow.Array]:
    """Give a file's texts from the cache, and make sure that they are all there, in UTF-8."""
    arrow = _arrow_files(path, field)
    count = 0
    try:
        for file in sorted(arrow.folder.glob("*.arrow")):
            for batch in pyarrow.ipc.open_stream(pyarrow.OSFile(str(file))):
                texts = batch.column(field)
                texts.validate(full=True)
                yield texts
                count += len(texts)
        if count != arrow.documents:
            raise ValueError(f"{arrow.documents - count:,} are missing")
    except (OSError, ValueError) as error:
        raise CourseError(
            f"The text {path.rpartition('/')[2]} can't be read from the cache of datasets.",
            f"Behind document {count:,} of {arrow.documents:,}: {cause(error)}.",
            f"If all of it is UTF-8 (a lone surrogate isn't), delete {arrow.folder} and run it "
            "again.",
        ) from error


def _unreadable(name: str, error: BaseException) -> CourseError:
    """Make the error of a file that can't be read, from the error that is at its root."""
    while error.__cause__ is not None:
        error = error.__cause__
    what = f"The text {name} can't be read."
    if isinstance(error, UnicodeDecodeError):
        before = error.object[max(0, error.start - 40) : error.start].decode("utf-8", "replace")
        return CourseError(
            what,
            f"It is not UTF-8: byte 0x{error.object[error.start]:02x} behind {before!r}.",
            "Write it in UTF-8: `iconv -f CP949 -t UTF-8 FILE > NEW`, -f UTF-16 from Windows.",
        )
    is_full = getattr(error, "errno", None) in (
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EFBIG,
        errno.EEXIST,
    )
    file = str(getattr(error, "filename", None))
    is_in_cache = file.startswith("/") and pathlib.Path(file).name != name
    if is_full or is_in_cache:
        return CourseError(
            what,
            f"The library datasets can't write it into its cache ({cause(error)}).",
            "Make room, or set HF_DATASETS_CACHE to a folder that you may write to.",
        )
    why = f"{cause(error)}."
    if isinstance(error, datasets.arrow_writer.SchemaInferenceError | StopIteration):
        why = "It is empty."
    elif isinstance(error, EOFError):  # of gzip, bz2 and xz
        why = "It is cut off: what is compressed in it has no end."
    return CourseError(
        what, why, "Check that you may read it; if it is cut off or damaged, copy it again."
    )
