"""Documents of files of any common kind: ``datasets`` reads them into Arrow files on the disk.

Each shard reads an Arrow file from its start, some thousand rows at a time.
"""

import codecs
import contextlib
import dataclasses
import errno
import functools
import glob
import json
import os
import pathlib
import re
from collections.abc import Iterator, Sequence

import datasets
import fsspec
import pyarrow
from datasets.data_files import resolve_pattern

from helpers.base.errors import CourseError, cause
from helpers.base.folders import Folder
from helpers.text.documents import Source

_KINDS = {".json": "json", ".jsonl": "json", ".ndjson": "json", ".parquet": "parquet"}


@dataclasses.dataclass(frozen=True)
class Files(Source):
    """Documents in files, which `find` finds."""

    paths: tuple[str, ...]  # here, ``gs://…`` or ``hf://datasets/…``
    field: str = "text"  # what holds the text in JSON lines and Parquet

    def files(self) -> Iterator[Iterator[pyarrow.Array]]:
        """Give the texts of each file, some thousand at a time."""
        for path in self.paths:
            yield _texts(path, self.field)

    def versions(self) -> list[str]:
        """Tell when each file came, as this process reads it."""
        return [_arrow_files(path, self.field)[3] for path in self.paths]


def find(inputs: Sequence[str], field: str = "text", output: str = "") -> Files:
    """Find the files that the inputs name; in whatever order they are named, it is the same.

    A file is JSON lines if its name ends with .json, .jsonl or .ndjson, Parquet with .parquet, else
    plain text, a document on each line. It may be compressed: .gz, .bz2, .xz behind that.

    Args:
        inputs: Files, folders, patterns such as ``texts/*.gz``, each here, ``gs://…`` or
            ``hf://datasets/…`` (the Hugging Face Hub). Hidden files are passed over.
        field: What holds the text in JSON lines and Parquet.
        output: Where records are written: those of an earlier run are no text.

    Raises `CourseError`: There is no such file.
    """
    _arrow_files.cache_clear()  # files may have changed since
    real = os.path.realpath  # out/../out, or a link
    own = re.escape(real(output)) + r"/(held-out/)?(shard-[\d-]+-of-\d+|manifest|tokenizer)\.\w+"
    named = sorted({path.replace("/./", "/") for given in inputs for path in _matching(given)})
    found = {real(x): x for x in named if not (output and re.fullmatch(own, real(x)))}.values()
    # By name first: then it doesn't count where the folders are.
    return Files(tuple(sorted(found, key=lambda path: (path.rpartition("/")[2], path))), field)


def _matching(given: str) -> list[str]:
    path = os.path.expanduser(given)  # noqa: PTH111 (a Path would make one slash of two)
    if pathlib.Path(path).exists():
        path = glob.escape(path)  # a file's own name may look like a pattern
    if path.startswith("gs://"):  # first, because the library would wait for minutes for an answer
        bucket, _, name = re.split(r"[*?[]", path[5:])[0].partition("/")
        Folder(f"gs://{bucket}").exists(name or "any")
    patterns = (path, f"{path.rstrip('/')}/**") if path else ()  # a file or pattern; a folder
    found = []
    try:
        for pattern in patterns:
            with contextlib.suppress(FileNotFoundError):
                found = found or resolve_pattern(pattern, str(pathlib.Path.cwd()))
    except Exception as error:  # of the library of each kind of storage
        raise _unreadable(given, error) from error
    if not found or any("::" in name for name in (path, *found)):  # fsspec's sign of a chain
        raise CourseError(
            f"The text {given[:80]} is not there.",
            "No file of this name exists, none fits the pattern, the folder has none, or it is a "
            "pipe. A name with :: can't be read.",
            "Check the path; a pattern stands in quotation marks. Write what a pipe gives to a "
            "file; .gz, .bz2 and .xz are read as they are.",
        )
    return found


@functools.cache
def _arrow_files(path: str, field: str) -> tuple[pathlib.Path, int, str, str]:
    """Make Arrow files of a file, in the cache of ``datasets`` (``HF_DATASETS_CACHE``).

    Gives their folder, the number of documents, the column with the text, and when the file came.
    """
    name = path.rpartition("/")[2]
    ending = pathlib.Path(re.sub(r"\.(gz|bz2|xz|zst)$", "", name)).suffix
    kind = _KINDS.get(ending, "text")
    column = "text" if kind == "text" else field
    try:
        other = _other_kind(path, ending, kind)
    except Exception as error:  # of the library of each kind of storage
        raise _unreadable(name, error) from error
    if other:
        raise CourseError(
            f"The text {name} can't be used.",
            f"It is {other}, and each of its lines would be a document.",
            "Unpack an archive and name its folder. Name JSON lines .jsonl; of a table make them: "
            "pandas.read_csv(FILE).to_json('NEW.jsonl', orient='records', lines=True).",
        )
    datasets.logging.set_verbosity(datasets.logging.CRITICAL)  # every error is raised
    try:
        # `load_dataset` would map the files into memory, too: that counts as this process's memory.
        # Its cache knows a file by its time, which an archive sets; not when it came here.
        came = str(os.stat(path).st_ctime_ns) if os.path.exists(path) else None  # noqa: PTH110, PTH116
        builder = datasets.load_dataset_builder(kind, came, data_files=[glob.escape(path)])
        builder.download_and_prepare()
    except Exception as error:
        raise _unreadable(name, error) from error
    features = builder.info.features.items()
    found = {field: getattr(feature, "dtype", "a structure") for field, feature in features}
    if found.get(column) not in ("string", "large_string"):
        raise CourseError(
            f"The text {name} can't be used.",
            f"It has no text in a field {column!r}, but {found}.",
            "Name the field with the text (--field NAME), or choose another file.",
        )
    came = f"{came} {builder.config.data_files['train'].origin_metadata}"
    count = builder.info.splits["train"].num_examples
    return pathlib.Path(builder.cache_dir), count, column, came


def _other_kind(path: str, ending: str, kind: str) -> str:
    """Say what a file is that its name doesn't tell; empty where it is of its kind."""
    with fsspec.open(path, "rb", compression="infer") as file:
        begins = file.read(2**20).removeprefix(codecs.BOM_UTF8)
    if begins and not begins.strip(b"\0"):
        raise ValueError("it begins with zeros, as a file that didn't arrive whole")
    if kind == "text" and (begins[257:262] == b"ustar" or begins.startswith(b"PK\3\4")):
        return "an archive"
    for line in begins.splitlines() if kind == "json" else ():
        with contextlib.suppress(ValueError):
            json.loads(line)  # what is nested too deeply is an error here; pyarrow would crash
    if kind == "text" and re.match(rb'\[?\{"', begins):
        return "JSON"
    return "a table" if kind == "text" and ending in (".csv", ".tsv") else ""


def _texts(path: str, field: str) -> Iterator[pyarrow.Array]:
    """Give a file's texts from the cache, and make sure that they are all there, in UTF-8."""
    cache, count, column, _ = _arrow_files(path, field)
    read = 0
    try:
        for file in sorted(cache.glob("*.arrow")):
            for batch in pyarrow.ipc.open_stream(pyarrow.OSFile(str(file))):
                (texts := batch.column(column)).validate(full=True)
                yield texts
                read += len(texts)
        if read != count:
            raise ValueError(f"{count - read:,} are missing")
    except (OSError, ValueError) as error:
        raise CourseError(
            f"The text {path.rpartition('/')[2]} can't be read from the cache of datasets.",
            f"Behind document {read:,} of {count:,}: {cause(error)}.",
            f"If all of it is UTF-8 (a lone surrogate isn't), delete {cache} and run it again.",
        ) from error


def _unreadable(name: str, error: BaseException) -> CourseError:
    """Make the error of a file that can't be read, from the error that is at its root."""
    while error.__cause__ is not None:
        error = error.__cause__
    why = f"{cause(error)}."
    fix = "Check that you may read it; if it is cut off or damaged, copy it again."
    if isinstance(error, datasets.arrow_writer.SchemaInferenceError | StopIteration):
        why = "It is empty."
    full = getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EEXIST)
    at = str(getattr(error, "filename", None))
    if full or (at.startswith("/") and pathlib.Path(at).name != name):
        why = f"The library datasets can't write it into its cache ({cause(error)})."
        fix = "Make room, or set HF_DATASETS_CACHE to a folder that you may write to."
    if isinstance(error, UnicodeDecodeError):
        behind = error.object[max(0, error.start - 40) : error.start].decode("utf-8", "replace")
        why = f"It is not UTF-8: byte 0x{error.object[error.start]:02x} behind {behind!r}."
        fix = "Write it in UTF-8: `iconv -f CP949 -t UTF-8 FILE > NEW`, -f UTF-16 from Windows."
    return CourseError(f"The text {name} can't be read.", why, fix)
