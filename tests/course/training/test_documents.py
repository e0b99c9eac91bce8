"""Files of every kind as the same documents, and one clear error for each wrong one."""

import bz2
import gzip
import io
import json
import lzma
import os
import tarfile

import fsspec
import pandas as pd
import pyarrow.parquet
import pytest

from course import documents
from helpers.base.errors import CourseError
from helpers.text import corpus
from helpers.tpu import storage

pytestmark = pytest.mark.slow

LINES = [f"문서 {number}번입니다." for number in range(25)]


def all_of(source, part="all", shards=1, seed=0):
    return [list(source.shard(part, shard, shards, seed)) for shard in range(shards)]


def write(folder, name, data):
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(data)
    return str(folder / name)


def plain(lines):
    return "\n".join(lines).encode()


def objects(lines):
    return plain(json.dumps({"id": 3, "body": line}, ensure_ascii=False) for line in lines)


def parquet(lines):
    file = io.BytesIO()
    pd.DataFrame({"body": [*lines, None, ""]}).to_parquet(file)
    return file.getvalue()


KINDS = {
    "a[1].txt": plain(LINES),
    "windows": "\ufeff".encode() + plain(LINES).replace(b"\n", b"\r\n"),
    "blank.txt": plain(f"{line}\n \n" for line in LINES),
    "a.txt.gz": gzip.compress(plain(LINES)),
    "a.bz2": bz2.compress(plain(LINES)),
    "a.xz": lzma.compress(plain(LINES)),
    "a.jsonl": objects(LINES),
    "a.json.gz": gzip.compress(objects(LINES)),
    "a.parquet": parquet(LINES),
}


@pytest.mark.parametrize("name", KINDS)
def test_a_file_of_any_kind_gives_its_documents(tmp_path, name):
    source = documents.find([write(tmp_path, name, KINDS[name])], "body")
    assert all_of(source) == [LINES]
    assert all_of(source, "held-out") == [[LINES[9], LINES[19]]]


def test_each_document_goes_to_one_shard_and_one_part(tmp_path):
    for number in range(3):
        write(tmp_path, f"{number}.txt", plain(f"{number} {at}" for at in range(1_500)))
    source = documents.find([str(tmp_path)])
    parts = {part: all_of(source, part, 4) for part in ("train", "held-out")}
    found = sorted(text for shards in parts.values() for shard in shards for text in shard)
    assert found == sorted(f"{number} {at}" for number in range(3) for at in range(1_500))
    held = {text for shard in parts["held-out"] for text in shard}
    assert held == {f"{n} {at}" for n in range(3) for at in range(1_500) if corpus.held_out(at)}
    assert all(900 < len(shard) < 1_125 for shard in parts["train"])
    assert all_of(source, "train", 4, seed=1) != parts["train"]


def test_files_are_found_in_any_order_in_folders_and_by_patterns(tmp_path):
    for name in ("b[1].txt", "a.txt", ".hidden"):
        write(tmp_path / "texts", name, plain([name]))
    one, two = (str(tmp_path / "texts" / name) for name in ("a.txt", "b[1].txt"))
    wanted = documents.Files((one, two))
    folder, pattern, up = (f"{tmp_path}/texts{end}" for end in ("", "/*.txt", "/../texts/a.txt"))
    for inputs in ([one, two], [two, one], [one, up, two], [folder], [pattern], [folder, two]):
        assert documents.find(inputs) == wanted
    for name in ("shard-00000-of-00008.tfrecord", "tokenizer.json"):  # of an earlier run
        write(tmp_path / "texts/out", name, b"{}")
    for given, out in ((folder, "out"), (f"{folder}/.", "./out"), (folder, "out/../out")):
        assert documents.find([given, one], output=f"{folder}/{out}") == wanted
    for nothing in (str(tmp_path / "none"), ""):
        with pytest.raises(CourseError, match="is not there"):
            documents.find([nothing])


def test_a_bucket_is_read(tmp_path):
    with storage.embedded_gcs() as bucket:
        with fsspec.open(f"{bucket.url}/texts/a.txt", "wb") as file:
            file.write(plain(LINES))
        assert all_of(documents.find([f"{bucket.url}/texts"])) == [LINES]


def test_a_file_that_takes_the_place_of_one_of_the_same_time_is_read(tmp_path):
    for line in ("old", "new"):
        path = write(tmp_path, "a.txt", line.encode())
        os.utime(path, (1, 1))
        assert all_of(documents.find([path])) == [[line]]


PACKED = gzip.compress(plain(LINES * 50))


def archive():
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as tar:
        tar.addfile(tarfile.TarInfo("a.txt"), io.BytesIO())
    return file.getvalue()


def surrogate():
    file, texts = io.BytesIO(), pyarrow.array([b"one", b"two \xed\xa0\x80"])
    pyarrow.parquet.write_table(pyarrow.table({"body": texts.view(pyarrow.string())}), file)
    return file.getvalue()


WRONG = {
    "several.txt.gz": (archive(), "an archive"),
    "lines.txt": (objects(LINES), "is JSON"),
    "array.txt.gz": (gzip.compress(b"[%s]" % objects(LINES[:1])), "is JSON"),
    "table.csv": (b"id,text\n1,one\n", "a table"),
    "empty.txt": (b"", "is empty"),
    "old.txt": ("Title\n옛날 문서입니다.\n".encode("cp949"), "byte 0xbf behind 'Title"),
    "cut.txt.gz": (PACKED[:-30], "end-of-stream|EOF"),
    "zeros.txt": (bytes(2**21), "begins with zeros"),
    "column.jsonl": (objects(LINES).replace(b'"body"', b'"bodies"'), "field 'body', but {'id'"),
    "object.jsonl": (b'{"body": {"ko": "\xeb\xac\xb8"}}', "but {'body': 'a structure'}"),
    "deep.jsonl": (b'{"body": ' + b"[" * 10**5, "RecursionError"),
    "utf-16.txt": (b"\xff\xfea\0", "-f UTF-16"),
    "cut.jsonl": (objects(LINES)[:-5], "JSON"),
    "table.parquet": (b"PAR1 and then nothing", "Parquet"),
    "surrogate.parquet": (surrogate(), r"document 0 of 2: .*UTF8 sequence at string index 1"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_file_has_one_clear_error_that_names_it(tmp_path, name, caplog):
    data, words = WRONG[name]
    inputs = [write(tmp_path, name, data)]
    if name.endswith((".txt", ".gz")):
        inputs.append(write(tmp_path, "good.txt", plain(LINES)))
    with pytest.raises(CourseError, match=words) as caught:
        all_of(documents.find(inputs, "body"))
    assert f"The text {name} " in caught.value.what and not caplog.records


def test_a_cache_that_was_overwritten_is_told(tmp_path):
    source = documents.find([write(tmp_path, "a.txt", plain(LINES))])
    (arrow,) = documents._arrow_files(source.paths[0], "text")[0].glob("*.arrow")
    schema, data = int.from_bytes(arrow.read_bytes()[4:8], "little") + 8, arrow.read_bytes()
    arrow.write_bytes(data[:schema] + bytes(len(data) - schema))  # which ends a stream
    with pytest.raises(CourseError, match=r"0 of 25: .*25 are missing\.\n.*delete"):
        all_of(source)
