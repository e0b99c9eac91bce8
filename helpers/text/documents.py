"""Documents of files of any common kind: ``datasets`` reads them into Arrow files on the disk.

An Arrow file is read from its start, some thousand rows at a time, by each shard that takes
documents from it: that is a small part of what tokenizing them takes, and needs no memory.
"""

import dataclasses
import functools
import hashlib
import os
import pathlib
import re
from collections.abc import Iterable, Iterator, Sequence

import datasets
import fsspec
import numpy as np
import pyarrow
import pyarrow.compute
from datasets.naming import filenames_for_dataset_split

from helpers.base.errors import CourseError
from helpers.base.folders import is_remote
from helpers.text import corpus

Column = Iterable[pyarrow.Array]  # texts, some at a time

_DATASET = re.compile(r"hf://(.+)/([^/]+)/([^/]+)")
_PACKED = r"(\.(gz|bz2|xz|zst))?$"


@dataclasses.dataclass(frozen=True)
class Listed:
    """Documents in memory."""

    texts: tuple[str, ...]

    def columns(self) -> Iterator[Column]:
        """Give them as the only column."""
        yield [pyarrow.array(self.texts, pyarrow.string())]


@dataclasses.dataclass(frozen=True)
class Files:
    """Documents in files, which `find` finds."""

    paths: tuple[str, ...]  # here, ``gs://…`` or ``hf://NAME/CONFIG/SPLIT``
    field: str = "text"  # what holds the text in JSON lines, Parquet and datasets

    def columns(self) -> Iterator[Column]:
        """Give the texts of each file.

        The first call writes Arrow files to the cache of ``datasets`` (``HF_DATASETS_CACHE``).

        Raises:
            CourseError: A file can't be read, is empty or damaged, has another encoding, or lacks
                the field.
        """
        for paths, name in _arrow_files(self.paths, self.field):
            yield _stream(paths, name)


Source = Listed | Files


def _stream(paths: Sequence[str], name: str) -> Column:
    # Mapped into memory, a file would count as memory of this process.
    for path in paths:
        with pyarrow.OSFile(path) as file:
            for batch in pyarrow.ipc.open_stream(file):
                yield batch.column(name)


def find(inputs: Sequence[str], field: str = "text") -> Files:
    """Find the files that the inputs name; in whatever order they are named, it is the same.

    A file is JSON lines if its name ends with .json, .jsonl or .ndjson, Parquet with .parquet, else
    plain text, a document on each line. It may be compressed: .gz, .bz2, .xz behind that.

    Args:
        inputs: Files, folders, patterns such as ``texts/*.gz``, each here or ``gs://``; or
            ``hf://NAME/CONFIG/SPLIT`` for a Hugging Face dataset. In folders, names that begin with
            a dot or an underscore are passed over.
        field: What holds the text in JSON lines, Parquet and datasets.

    Raises:
        CourseError: There is no such file.
    """
    _arrow_files.cache_clear()  # files may have changed since
    found = set()
    for given in inputs:
        found.update([given] if given.startswith("hf://") else _files(given))
    # By name first: then it doesn't count where the folders are.
    return Files(tuple(sorted(found, key=lambda path: (path.rpartition("/")[2], path))), field)


def _files(given: str) -> list[str]:
    local = not is_remote(given)
    # A pattern is no path.
    address = os.path.abspath(os.path.expanduser(given)) if local else given  # noqa: PTH100, PTH111
    try:
        system, path = fsspec.core.url_to_fs(address, use_listings_cache=False)
        if system.isdir(path):
            names = [
                name for name in system.find(path) if not re.search(r"/[._]", name[len(path) :])
            ]
        else:
            names = (
                [path] if system.isfile(path) else list(filter(system.isfile, system.glob(path)))
            )
    except Exception as error:  # of the library of each kind of storage
        raise _unreadable(given, error) from error
    if not names:
        raise CourseError(
            f"The text {given[:80]} is not there.",
            "No file of this name exists, none fits the pattern, or the folder has none.",
            "Check the path; a pattern stands in quotation marks.",
        )
    return [str(pathlib.Path(name).resolve()) if local else f"gs://{name}" for name in names]


def _kind(path: str) -> str:
    """Tell by a file's name which builder of ``datasets`` reads it; for a dataset, its name."""
    if path.startswith("hf://"):
        return path
    if re.search(r"\.(json|jsonl|ndjson)" + _PACKED, path):
        return "json"
    return "parquet" if path.endswith(".parquet") else "text"


@functools.cache
def _arrow_files(paths: Sequence[str], field: str) -> list[tuple[list[str], str]]:
    """Make Arrow files of each file; give their paths, and the column with the text."""
    made = {}
    for kind in dict.fromkeys(map(_kind, paths)):
        some = [path for path in paths if _kind(path) == kind]
        try:
            made |= _load(kind, some)
        except Exception:  # it names no file: find out which one it is
            for path in some:
                try:
                    made |= _load(kind, [path])
                except Exception as error:
                    raise _unreadable(path, error) from error
    return [_checked(path, *made[path], field) for path in paths]


def _load(kind: str, paths: Sequence[str]) -> dict[str, tuple[datasets.SplitInfo, list[str]]]:
    """Let ``datasets`` read files of one kind, each as a split; give the Arrow files of each.

    ``load_dataset`` would map them into memory, too, and that counts as memory of this process.
    """
    if kind.startswith("hf://"):
        if not (found := _DATASET.fullmatch(kind)):
            raise ValueError("a dataset is named hf://NAME/CONFIG/SPLIT")
        name, config, split = found.groups()
        builder, splits = datasets.load_dataset_builder(name, config), {split: kind}
    else:
        splits = {f"file{number}": path for number, path in enumerate(paths)}
        data_files = {split: [path] for split, path in splits.items()}
        builder = datasets.load_dataset_builder(kind, data_files=data_files)
    builder.download_and_prepare()
    made = {}
    for split, path in splits.items():
        info = builder.info.splits[split]
        files = filenames_for_dataset_split(
            builder.cache_dir, builder.dataset_name, split, "arrow", info.shard_lengths
        )
        made[path] = info, files
    return made


def _checked(
    path: str, info: datasets.SplitInfo, files: list[str], field: str
) -> tuple[list[str], str]:
    with pyarrow.OSFile(files[0]) as file:
        schema = pyarrow.ipc.open_stream(file).schema
    name, why = "text" if _kind(path) == "text" else field, None
    if not info.num_examples:
        why = "It is empty: a download or a copy was probably cut off."
    elif name not in schema.names:
        why = f"It has no field {name!r}, but {', '.join(map(repr, schema.names[:9]))}."
    elif str(kind := schema.field(name).type) not in ("string", "large_string"):
        why = f"Its field {name!r} is no text, but {kind}."
    if why:
        raise CourseError(
            f"The text {_name(path)} can't be used.",
            why,
            "Name the field with the text (--field NAME), or choose another file.",
        )
    return files, name


def _name(path: str) -> str:
    return path if path.startswith("hf://") else path.rpartition("/")[2]


def _unreadable(path: str, error: BaseException) -> CourseError:
    """Make the error of a file that can't be read, from the error that is at its root."""
    while error.__cause__ is not None:
        error = error.__cause__
    why = f"{type(error).__name__}: {' '.join(str(error).split())[:300].rstrip('.')}."
    fix = "Check that you may read it; if it is cut off or damaged, copy it again."
    if isinstance(error, datasets.arrow_writer.SchemaInferenceError):
        why = "It is empty."
    if isinstance(error, UnicodeDecodeError):
        why = f"It is not UTF-8: byte 0x{error.object[error.start]:02x} ({error.reason})."
        fix = "Write it in UTF-8; from older Korean files `iconv -f CP949 -t UTF-8 FILE > NEW`."
    return CourseError(f"The text {_name(path)} can't be read.", why, fix)


def digest(source: Source) -> str:
    """Name documents by what they say and by their order, with 16 hexadecimal digits."""
    total = hashlib.blake2b(digest_size=8)
    for column in source.columns():
        for texts in column:
            said = "".join(f"{text or ''}\0" for text in texts.to_pylist())
            total.update(said.encode())
        total.update(b"\0")
    return total.hexdigest()


def documents(source: Source, part: str, shard: int, shards: int, seed: int) -> Iterator[str]:
    """Give one shard's documents, cleaned, without those of which nothing is left.

    ``part`` is ``all``, ``train`` or ``held-out``: of each file, the last of each ten documents is
    held out (`corpus.held_out`; blank lines don't count). Which shard a document goes to is drawn.
    """
    for number, column in enumerate(source.columns()):
        # Numbers of this generator are the same in every version of NumPy (its policy, NEP 19).
        draw, before = np.random.Philox(key=[seed, number]), 0
        for texts in column:
            blank = pyarrow.compute.utf8_is_space(texts)  # false for an empty text
            blank = pyarrow.compute.or_(blank, pyarrow.compute.equal(texts, "")).fill_null(True)
            said = ~blank.to_numpy(zero_copy_only=False)
            place = before + np.cumsum(said) - 1
            before += int(said.sum())
            wanted = said & (draw.random_raw(len(texts)) % np.uint64(shards) == shard)
            if part != "all":
                wanted &= corpus.held_out(place) == (part == "held-out")
            for text in texts.take(pyarrow.array(np.flatnonzero(wanted))).to_pylist():
                if cleaned := corpus.clean(text):
                    yield cleaned
