"""Files of every kind as the same documents, and one clear error for each wrong one."""

import bz2
import gzip
import io
import itertools
import json
import lzma
import os
import sys
import tarfile
import time
import zipfile

import fsspec
import pandas as pd
import pyarrow.parquet
import pytest
from conventions import ROOT
from terminal import call

from course import documents, text_files
from helpers.base.errors import CourseError
from helpers.text import corpus
from helpers.text import documents as text_documents
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
    rows = [json.dumps({"id": 3, "body": line}, ensure_ascii=False) for line in lines]
    return plain(rows)


def parquet(lines):
    file = io.BytesIO()
    pd.DataFrame({"body": [*lines, None, ""]}).to_parquet(file)
    return file.getvalue()


KINDS = {
    "a[1].txt": plain(LINES),
    "windows": "\ufeff".encode() + plain(LINES).replace(b"\n", b"\r\n"),
    "mac.txt": plain(LINES).replace(b"\n", b"\r"),
    "blank.txt": plain(LINES).replace(b"\n", b"\n\n \n\n"),
    "a.txt.gz": gzip.compress(plain(LINES)),
    "a.bz2": bz2.compress(plain(LINES)),
    "a.xz": lzma.compress(plain(LINES)),
    "a.jsonl": objects(LINES),
    "a.json.gz": gzip.compress(objects(LINES)),
    "a.parquet": parquet(LINES),
    # By their first bytes, whatever they are named; and names in capital letters.
    "A.JSONL": objects(LINES),
    "A.PARQUET": parquet(LINES),
    "table": parquet(LINES),
    "gzip.txt": gzip.compress(plain(LINES)),
    "B.GZ": gzip.compress(plain(LINES)),
}


@pytest.mark.parametrize("name", KINDS)
def test_a_file_of_any_kind_gives_its_documents(tmp_path, name):
    source = documents.find([write(tmp_path, name, KINDS[name])], "body")
    assert all_of(source) == [LINES]
    assert all_of(source, "held-out") == [[LINES[9], LINES[19]]]


def test_blocks_end_anywhere_and_a_long_line_is_cut_at_a_space(tmp_path, monkeypatch):
    lines = ["가나다 라마바 " * 30, "x" * 300, "", "끝"]
    expected = [line.strip() for line in lines if line]
    path = write(tmp_path, "a.txt", plain(lines).replace(b"\n", b"\r\n"))
    for block in (1, 2, 3, 7, 100, 10_000):
        monkeypatch.setattr(text_files, "BLOCK", block)
        assert all_of(documents.find([path])) == [expected]
    for longest in (400, 50):
        monkeypatch.setattr(text_documents, "LONGEST", longest)
        monkeypatch.setattr(text_files, "LONGEST", longest)
        results = []
        for block in (1, 2, 3, 7, 100, 10_000):
            monkeypatch.setattr(text_files, "BLOCK", block)
            source = documents.find([path])
            results.append((all_of(source), source.digest()))
        assert results.count(results[0]) == len(results)
        (pieces,) = results[0][0]
        assert len(pieces) > len(expected)
        for piece in pieces:
            assert len(piece.encode()) <= longest
        words = " ".join(pieces[:-1]).split()
        assert "".join(words) == "".join(expected[:-1]).replace(" ", "")
        assert set(words) <= {"가나다", "라마바", *("x" * n for n in (300, 50))}


def test_each_document_goes_to_one_shard_and_one_part(tmp_path):
    for number in range(3):
        write(tmp_path, f"{number}.txt", plain(f"{number} {at}" for at in range(1_500)))
    source = documents.find([str(tmp_path)])
    parts = {part: all_of(source, part, 4) for part in ("train", "held-out")}
    expected = {"train": [], "held-out": []}
    for number in range(3):
        for line in range(1_500):
            part = "held-out" if corpus.held_out(line) else "train"
            expected[part].append(f"{number} {line}")
    for part, shards in parts.items():
        assert sorted(itertools.chain(*shards)) == sorted(expected[part])
    for shard in parts["train"]:
        assert 900 < len(shard) < 1_125
    assert all_of(source, "train", 4, seed=1) != parts["train"]


def test_files_are_found_in_any_order_in_folders_and_by_patterns(tmp_path):
    for name in ("b[1].txt", "a.txt", ".hidden"):
        write(tmp_path / "texts", name, plain([name]))
    folder = str(tmp_path / "texts")
    a = f"{folder}/a.txt"
    b = f"{folder}/b[1].txt"
    pattern = f"{folder}/*.txt"
    up = f"{folder}/../texts/a.txt"
    expected = documents.Files((a, b))
    for inputs in ([a, b], [b, a], [a, up, b], [folder], [pattern], [folder, b]):
        assert documents.find(inputs) == expected
    for name in ("shard-00000-of-00008.tfrecord", "tokenizer.json"):  # of an earlier run
        write(tmp_path / "texts/out", name, b"{}")
    for source, out in ((folder, "out"), (f"{folder}/.", "./out"), (folder, "out/../out")):
        assert documents.find([source, a], output=f"{folder}/{out}") == expected
    for nothing in (str(tmp_path / "none"), ""):
        with pytest.raises(CourseError, match="is not there"):
            documents.find([nothing])


def test_what_is_left_out_of_a_folder_is_counted(tmp_path):
    for name in ("a.txt", ".hidden", "README.md", "out/manifest.json"):
        write(tmp_path / name.rpartition("/")[0], name.rpartition("/")[2], b"text")
    (tmp_path / "dangling.txt").symlink_to(tmp_path / "gone")
    (tmp_path / "zero.txt").symlink_to("/dev/zero")
    os.mkfifo(tmp_path / "pipe.txt")
    source = documents.find([str(tmp_path)], output=str(tmp_path / "out"))
    assert source.paths == (str(tmp_path / "a.txt"),)
    assert source.left_out == {
        "hidden files": 1,
        "README.md and other descriptions of data": 1,
        "links to nothing": 1,
        "pipes or devices": 2,
        "records of an earlier run": 1,
    }
    with pytest.raises(CourseError, match=r"a link to .*gone, which doesn't exist"):
        documents.find([str(tmp_path / "dangling.txt")])
    for name in ("zero.txt", "pipe.txt"):
        with pytest.raises(CourseError, match="or it is a pipe"):
            documents.find([str(tmp_path / name)])


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


def test_a_text_that_is_changed_while_it_is_read_is_told(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("one\n")
    source = documents.find([str(path)])
    source.digest()
    path.write_text("another\n")
    with pytest.raises(CourseError, match=r"a\.txt was changed meanwhile"):
        all_of(source)


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


def zipped():
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a.txt", plain(LINES))
    return file.getvalue()


WRONG = {
    "several.txt.gz": (archive(), "an archive"),
    "corpus.tgz": (archive(), r"an archive \(tar\)"),
    "corpus": (archive(), r"an archive \(tar\)"),
    "words.txt": (zipped(), r"an archive \(zip\)"),
    "twice.gz": (gzip.compress(gzip.compress(plain(LINES))), "compressed twice"),
    "a.zst": (b"\x28\xb5\x2f\xfd\x20\x05\x29", "Zstandard"),
    "A.CSV": (b"id,text\n1,one\n", "a table"),
    "lines.txt": (objects(LINES), "is JSON"),
    "array.txt.gz": (gzip.compress(b"[%s]" % objects(LINES[:1])), "is JSON"),
    "table.csv": (b"id,text\n1,one\n", "a table"),
    "empty.txt": (b"", "is empty"),
    "old.txt": ("Title\n옛날 문서입니다.\n".encode("cp949"), "byte 0xbf behind 'Title"),
    "cut.txt.gz": (PACKED[:-30], "It is cut off"),
    "zeros.txt": (bytes(2**21), "begins with zeros"),
    "column.jsonl": (objects(LINES).replace(b'"body"', b'"bodies"'), "field 'body', but {'id'"),
    "object.jsonl": (b'{"body": {"ko": "\xeb\xac\xb8"}}', "but {'body': 'a structure'}"),
    "deep.jsonl": (b'{"body": ' + b"[" * 10**5, "RecursionError"),
    "utf-16.txt": (b"\xff\xfea\0", "-f UTF-16"),
    "without-a-mark.txt": ("A line.\n".encode("utf-16-le"), "-f UTF-16LE"),
    "without-a-mark.gz": (gzip.compress("A line.\n".encode("utf-16-le")), "-f UTF-16LE"),
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
    assert f"The text {name} " in caught.value.what
    assert not caplog.records


def test_a_cache_that_was_overwritten_is_told(tmp_path):
    source = documents.find([write(tmp_path, "a.jsonl", objects(LINES))], "body")
    (arrow,) = documents._arrow_files(source.paths[0], "body").folder.glob("*.arrow")
    data = arrow.read_bytes()
    schema = int.from_bytes(data[4:8], "little") + 8
    arrow.write_bytes(data[:schema] + bytes(len(data) - schema))  # which ends a stream
    with pytest.raises(CourseError, match=r"0 of 25: .*25 are missing\.\n.*delete"):
        all_of(source)


@pytest.mark.long
def test_two_thousand_small_files_take_no_second_for_each_hundred(tmp_path):
    for number in range(2_000):
        write(tmp_path, f"{number}.txt", b"one\ntwo\n")
    start = time.process_time()
    source = documents.find([str(tmp_path)])
    source.digest()
    assert sum(map(len, all_of(source, shards=4))) == 4_000
    assert time.process_time() - start < 20  # 160 s, when each had Arrow files


@pytest.mark.long
def test_an_empty_variable_leaves_no_files_in_the_current_folder(tmp_path):
    write(tmp_path, "a.jsonl", objects(LINES))
    words = (sys.executable, "-m", "course", "prepare", "-i", "a.jsonl", "--field", "body")
    words += ("-o", "out", "--shards", "1")
    environment = os.environ | {"HOME": str(tmp_path / "home"), "PYTHONPATH": str(ROOT)}
    environment |= {"HF_DATASETS_CACHE": "", "HF_HOME": ""}
    process = call(*words, cwd=tmp_path, env=environment)
    assert process.returncode == 0, process.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"a.jsonl", "out", "home"}
    environment |= {"HF_DATASETS_IN_MEMORY_MAX_SIZE": "much"}
    process = call(*words, cwd=tmp_path, env=environment)
    assert process.returncode == 2
    assert "HF_DATASETS_IN_MEMORY_MAX_SIZE" in process.stderr
    assert "at fault" not in process.stderr
