"""Documents out of every kind of file, wherever it lies; and what each bad file says."""

import bz2
import gzip
import io
import itertools
import json
import lzma
import os
import pathlib
import pickle
import subprocess
import sys
import tomllib

import pyarrow
import pytest
from conventions import ROOT
from pyarrow import parquet

from helpers.base.errors import CourseError
from helpers.text import corpus, sources

TEXTS = [f"문서 {at}번: {'가나다 ' * (at % 7)}끝" for at in range(1_000)]
BAD = tomllib.loads(pathlib.Path(__file__).with_name("bad_files.toml").read_text("utf-8"))["file"]


def zstd(data: bytes) -> bytes:
    packed = pyarrow.BufferOutputStream()
    with pyarrow.CompressedOutputStream(packed, "zstd") as file:
        file.write(data)
    return packed.getvalue().to_pybytes()


PACK = {None: bytes, "gzip": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress, "zstd": zstd}


def table(columns, **options) -> bytes:
    file = io.BytesIO()
    parquet.write_table(pyarrow.table(columns), file, **options)
    return file.getvalue()


def plain(texts, field=None):
    return "".join(f"{text}\r\n\n" for text in texts).encode("utf-8-sig")


def json_lines(texts, field="text"):
    return "".join(json.dumps({"id": "1", field: text}) + "\n" for text in texts).encode()


def rows(texts, field="text"):
    return table({"id": range(len(texts)), field: texts}, row_group_size=300)


KINDS = {"plain text": plain, "JSON lines": json_lines, "Parquet": rows}


def put(address: str, data: bytes) -> str:
    import fsspec

    with fsspec.open(address, "wb") as file:
        file.write(data)
    return address


@pytest.mark.parametrize("where", ["disk", "bucket"])
@pytest.mark.parametrize(("kind", "pack"), list(itertools.product(KINDS, PACK)))
def test_each_kind_gives_the_same_documents(kind, pack, where, tmp_path, gs):
    folder = f"{gs.url}/{kind}-{pack}" if where == "bucket" else str(tmp_path)
    # The name says nothing: the kind is told by content.
    address = put(f"{folder}/texts", PACK[pack](KINDS[kind](TEXTS)))
    (found,) = sources.find([address])
    assert (found.name, found.kind, found.compression) == ("texts", kind, pack)
    assert f"1 file, {found.size / 1e6:.1f} MB: {kind}" in sources.told([found])
    read = []
    wanted = [sources.Document(text, "texts", at) for at, text in enumerate(TEXTS)]
    assert list(found.documents(done=read.append)) == wanted
    assert sum(read) == found.size or (kind == "Parquet" and pack)
    assert list(pickle.loads(pickle.dumps(found)).documents()) == wanted


def test_a_dataset_is_streamed_file_by_file(tmp_path):
    for at, texts in enumerate((TEXTS[:3], [*TEXTS[3:5], None])):
        put(str(tmp_path / f"train-{at}.parquet"), rows(texts, field="body"))
    address = f"hf://{tmp_path}/default/train"
    found = sources.find([address], field="body")
    assert sources.told(found) == "2 files: dataset"
    assert [source.name for source in found] == [f"{address}#00000", f"{address}#00001"]
    documents = [(d.text, d.place) for source in found for d in source.documents()]
    assert documents == [*zip(TEXTS[:5], [0, 1, 2, 0, 1], strict=True), ("", 2)]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("hf://{folder}/default/test", "Bad split: test. Available splits: ['train']"),
        ("hf://{folder}/ko/train", "BuilderConfig 'ko' not found"),
        ("hf://{folder}/default/train", "has no field 'text'. Why: It has the fields 'id', 'body'"),
        ("hf://owner/name/default/train", "The Hugging Face Hub can't be reached"),
    ],
)
def test_a_dataset_that_cant_be_read_says_why(given, says, tmp_path, monkeypatch):
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:9")
    put(str(tmp_path / "train.parquet"), rows(TEXTS, field="body"))
    with pytest.raises(CourseError) as caught:
        sources.find([given.format(folder=tmp_path)])
    assert says in " ".join(str(caught.value).split())


def content(row: dict) -> bytes:
    data = bytes.fromhex(row.get("hex", "")) + row.get("text", "").encode(
        row.get("encoding", "utf-8")
    )
    data = data * row.get("times", 1) + bytes.fromhex(row.get("then", ""))
    data = PACK[row.get("pack")](table(row["parquet"]) if "parquet" in row else data)
    data = data[: len(data) - row.get("cut", 0)]
    return data[: row["hole"]].ljust(len(data), b"\0") if "hole" in row else data


@pytest.mark.parametrize("row", BAD, ids=lambda row: row["name"])
def test_a_bad_file_says_what_is_wrong_and_where(row, tmp_path):
    assert row.keys() <= {"name", "hex", "text", "encoding", "times", "then", "pack"} | {
        "parquet",
        "cut",
        "hole",
        "says",
        "whole",
    }
    path = put(str(tmp_path / row["name"]), content(row))
    with pytest.raises(CourseError) as caught:
        found = sources.find([path])
        # What its start tells is said before anything is written.
        assert not row.get("whole", True), "it was found"
        for _ in found[0].documents():
            pass
    message = " ".join(str(caught.value).split())
    for words in row["says"]:
        assert words in message
    assert row["name"] in message and str(tmp_path) not in message


def test_files_are_named_by_what_tells_them_apart(tmp_path, monkeypatch, gs):
    monkeypatch.chdir(tmp_path)
    files = ["ko/a.txt", "en/a.txt", "en/b.txt", "en/.hidden", "en/_SUCCESS", "en/more/c.txt"]
    for root, name in itertools.product([str(tmp_path), f"{gs.url}/names"], files):
        put(f"{root}/{name}", b"text\n")
    wanted = ["b.txt", "c.txt", "en/a.txt", "ko/a.txt"]
    for given in (
        ["ko", "en"],
        ["en/", "./ko/a.txt"],
        ["**/*.txt"],
        ["e*/**", "ko"][::-1],
        [str(tmp_path)],
        [f"{gs.url}/names"],
        [f"{gs.url}/names/**/*.txt"],
        [f"{gs.url}/names/en/", f"{gs.url}/names/ko/a.txt"],
    ):
        assert [s.name for s in sources.find(given)] == wanted, given
    for given, says in (
        (["ko**.txt"], "can only be an entire path component"),
        ([f"{gs.url}/none"], "there is no such one"),
    ):
        with pytest.raises(CourseError, match=says):
            sources.find(given)


def test_standard_input_is_read_again_and_gone_at_the_end(tmp_path):
    script = (
        "from helpers.text import sources\n(s,) = sources.find(['-'])\nprint(s.address, s.name)\n"
    )
    script += "print([[d.text for d in s.documents()] for _ in range(2)])"
    environment = os.environ | {"TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    given = gzip.compress(json_lines(["하나", "둘"]))
    done = subprocess.run(
        [sys.executable, "-c", script], input=given, env=environment, capture_output=True
    )
    assert done.stdout.decode().splitlines()[1:] == ["[['하나', '둘'], ['하나', '둘']]"], (
        done.stderr
    )
    assert done.stdout.startswith(str(tmp_path).encode()) and not list(tmp_path.iterdir())


def test_what_is_no_character_is_counted_as_lost(tmp_path):
    path = put(
        str(tmp_path / "a"), b'{"text": "a\\ud800b"}\n{"text": "\\ud83d\\ude00"}\n{"text": null}\n'
    )
    texts = [document.text for document in sources.find([path])[0].documents()]
    assert texts == ["a\ufffdb", "\U0001f600", ""]
    assert corpus.survey(texts).replaced == 1
