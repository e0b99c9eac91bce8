"""What the words after ``--input`` name: files, folders, patterns, standard input, datasets."""

import atexit
import collections
import concurrent.futures
import io
import os
import pathlib
import re
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from helpers.base.errors import CourseError
from helpers.base.folders import is_remote
from helpers.text import corpus
from helpers.text.sources import kinds
from helpers.text.sources.source import Source
from helpers.text.sources.streams import START, failures, files_at, stream
from helpers.tpu.bucket import check_bucket

ASKED = 16  # files that are looked at side by side
STDIN = "standard input"


def find(inputs: Sequence[str], *, field: str = "text") -> tuple[Source, ...]:
    """Find the files that the inputs name, and tell by its first bytes of what kind each is.

    A file's name is its own; where two have the same, as much of their paths as tells them apart.
    So it is the same wherever the files lie, in whatever order and way they are named. The sources
    come in order of their names.

    Args:
        inputs: Files, folders, patterns such as ``texts/*.gz``, each here or ``gs://``; names that
            begin with a dot or an underscore are passed over. ``-`` for standard input.
            ``hf://NAME/CONFIG/SPLIT`` for a Hugging Face dataset.
        field: What holds the text in JSON lines, Parquet and datasets.

    Raises:
        CourseError: There is no such file, one is named twice, or it is of a kind that holds no
            text; it has another encoding, is damaged, or lacks the field, as far as its start
            tells.
    """
    found: dict[str, str] = {}  # address by what tells that it is the same file
    datasets = []
    for given in inputs:
        if given.startswith("hf://"):
            datasets += _parts(given, field)
            addresses = {given: given}
        else:
            addresses = dict(_files(given))
        if twice := found.keys() & addresses:
            name = found[min(twice)].rpartition("/")[2]
            raise CourseError(
                f"The text {STDIN if given == '-' else name} is given twice.",
                "Each of its documents would be trained on twice as often, and one copy of a "
                "held-out document could be trained on.",
                "Name each file once.",
            )
        found |= addresses
    files = [address for address in found.values() if not address.startswith("hf://")]
    names = _names(files)
    with concurrent.futures.ThreadPoolExecutor(ASKED) as pool:
        sources = list(pool.map(lambda at: _source(at, names[at], field), files))
    return tuple(sorted(sources + datasets, key=lambda source: source.name))


def told(sources: Sequence[Source]) -> str:
    """Say in one line how many sources there are, and of which kinds."""
    counts = collections.Counter(
        source.kind + (f" in {source.compression}" if source.compression else "")
        for source in sources
    )
    what = (f"{count:,} of {kind}" * (len(counts) > 1) or kind for kind, count in counts.items())
    size = sum(source.size or 0 for source in sources)
    files = f"{len(sources):,} file{'s' * (len(sources) != 1)}"
    return f"{files}{f', {size / 1e6:,.1f} MB' * bool(size)}: {', '.join(sorted(what))}"


def _files(given: str) -> Iterator[tuple[str, str]]:
    """Give what tells each file from others, and its path or address."""
    if given == "-":
        yield "-", _kept_input()
    elif is_remote(given) or re.match(r"\w\w+:/", given):
        if not re.match(r"gs://[^/]+/.", given):
            raise CourseError(
                f"The text {given[:60]} is not there.",
                "It has an address, and text is read from this machine's disk, gs://BUCKET/FILE "
                "and hf://NAME/CONFIG/SPLIT.",
                "Copy it here first.",
            )
        check_bucket(given, write=False)
        with failures(given, None, True, [""]):
            system, path = files_at(given)
            for name in _inside(system, path, given):
                yield f"gs://{name}", f"gs://{name}"
    else:
        path = os.path.expanduser(given)  # noqa: PTH111 (a pattern is no path)
        with failures(given, None, False, [""]):
            system, path = files_at(os.path.abspath(path))  # noqa: PTH100
            if not any(sign in path for sign in "*?[") and not system.isdir(path):
                corpus.check_file(pathlib.Path(path))
            for name in _inside(system, path, given):
                yield str(pathlib.Path(name).resolve()), name


def _inside(system: Any, path: str, given: str) -> list[str]:
    """Give the paths of a file, of all files in a folder, or of those that a pattern fits."""
    if system.isfile(path):
        return [path]
    if any(sign in path for sign in "*?["):
        why, entries = "No file fits the pattern.", {}
        hidden = "" if path.rpartition("/")[2][:1] in "._" else "._"
        try:
            entries = system.glob(path, detail=True)
        except ValueError as error:
            why = f"{str(error).rstrip('.')}."
        found = [name for name, entry in entries.items() if entry["type"] == "file"]
        found = [name for name in found if name.rpartition("/")[2][0] not in hidden]
    else:
        why = "It is an empty folder, or there is no such one."
        top = path.rstrip("/")
        inside = {name: name[len(top) + 1 :].split("/") for name in system.find(top)}
        found = [
            name for name, parts in inside.items() if not any(part[:1] in "._" for part in parts)
        ]
    if not found:
        raise CourseError(
            f"The text {given[:60]} is not there.", why, "Look what is there, and name files."
        )
    return found


def _kept_input() -> str:
    """Copy standard input to a file: it is read more than once, and by other processes."""
    if sys.stdin is None or sys.stdin.isatty():
        raise CourseError(
            "Nothing comes from standard input.",
            "It is a terminal, and `-` waits for what another program writes.",
            "Pipe text into the command: `zcat texts.gz | tpu-course prepare --input -`.",
        )
    folder = tempfile.mkdtemp(prefix="standard-input-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = pathlib.Path(folder) / STDIN
    with path.open("wb") as file:
        shutil.copyfileobj(sys.stdin.buffer, file, START)
    return str(path)


def _names(addresses: Iterable[str]) -> dict[str, str]:
    """Give each path its shortest end that no other path has."""
    parts = {address: address.split("/") for address in addresses}
    names = {}
    length = 1
    while parts:
        ends = {address: "/".join(part[-length:]) for address, part in parts.items()}
        counts = collections.Counter(ends.values())
        names |= {at: end for at, end in ends.items() if counts[end] == 1}
        parts = {at: part for at, part in parts.items() if at not in names}
        length += 1
    return names


def _parts(given: str, field: str) -> list[Source]:
    """Give the files of a dataset as sources of their own: they can be read side by side."""
    streamed = kinds.dataset(given, (0, 1))
    if streamed.features is not None and field not in streamed.features:
        raise kinds.no_field(given, "a dataset", field, kinds.fields(streamed.features))
    count = streamed.num_shards
    return [
        Source(
            f"{given}#{at:05}" if count > 1 else given,
            given,
            "dataset",
            None,
            None,
            field,
            (at, count),
        )
        for at in range(count)
    ]


def _source(address: str, name: str, field: str) -> Source:
    """Look at a file's first bytes.

    Raises:
        CourseError: It can't be read, or holds no text.
    """
    with failures(name, None, is_remote(address), ["its start"]):
        system, path = files_at(address)
        size = system.size(path)
    start, whole = _start(address, name, None)
    kind = corpus.other_kind(start) or {}
    if compression := kind.get("compression"):
        start, whole = _start(address, name, compression)
        kind = corpus.other_kind(start) or {}
    if kind and kind.get("reads") != "Parquet":
        inside = f", inside {compression}" if compression else ""
        raise CourseError(
            f"The text {name} is no text.", f"It is {kind['what']}{inside}.", kind["fix"]
        )
    if kind:
        if not compression:
            with failures(name, None, is_remote(address), ["its start"]):
                kinds.check_table(address, name, field)
        return Source(name, address, "Parquet", compression, size, field)
    lines = start if whole else start[: start.rfind(b"\n") + 1]
    if whole or lines.strip():
        # Says what is wrong before anything is written.
        texts = [line for _, line in corpus.lines(io.BytesIO(lines), name)]
    else:
        texts = []
    if not _is_json(name, texts or [start.decode("utf-8", "replace")]):
        return Source(name, address, "plain text", compression, size)
    for _ in kinds.json_lines(io.BytesIO(lines), name, field) if lines.strip() else ():
        pass
    return Source(name, address, "JSON lines", compression, size, field)


def _start(address: str, name: str, compression: str | None) -> tuple[bytes, bool]:
    """Read a file's first bytes, unpacked, and tell whether that is all of it."""
    with (
        failures(name, compression, is_remote(address), ["its start"]),
        stream(address, compression, lambda _: None, START) as file,
    ):
        start = file.read(START)
        return start, len(start) < START


def _is_json(name: str, texts: list[str]) -> bool:
    """Tell whether lines are JSON objects.

    Raises:
        CourseError: They are JSON of another form, by the file's name.
    """
    first = texts[0].lstrip("\ufeff \t")
    if all(map(corpus.is_json, texts[:3])):
        return True
    if re.search(r"\.(jsonl|ndjson)\b", name) and first.startswith("{"):
        return True
    if re.match(r'\{\s*"([^"\\]|\\.)*"\s*:', first) and len(texts) == 1 and len(first) > START // 2:
        return True  # a first line that is longer than what was read
    if re.search(r"\.json(\.\w+)?$", name) and first[:1] in ("{", "["):
        raise CourseError(
            f"The text {name} is JSON, but not one object per line.",
            "One value goes over many lines, and would have to be held in memory as a whole.",
            "Write its objects one per line: `jq -c '.[]' FILE > NEW_FILE.jsonl`.",
        )
    return False
