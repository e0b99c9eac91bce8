"""One set of operations on the disk, in fsspec's own memory and in a bucket: the same answers."""

import errno
import os

import pytest

from helpers import runtime
from helpers.base import files
from helpers.base.errors import CourseError
from helpers.base.folders import Folder, is_remote

runtime.setup()


@pytest.fixture(scope="module")
def bucket():
    from helpers.rehearsal import storage

    with storage.embedded_gcs() as running:
        yield running.url


@pytest.fixture(params=["disk", "memory", "bucket"])
def folder(request, tmp_path):
    if request.param == "bucket":
        return Folder(f"{request.getfixturevalue('bucket')}/{tmp_path.name}/")
    return Folder(tmp_path if request.param == "disk" else f"memory://{tmp_path.name}")


def test_what_is_written_is_read_listed_and_deleted(folder):
    folder.write("a.txt", "가\n")
    folder.write("below/b", b"\x00\x01\x02")
    folder.write("below/c/d", "")
    assert folder.read("a.txt") == "가\n".encode()
    assert (folder.read("below/b"), folder.read("below/b", limit=1)) == (b"\x00\x01\x02", b"\x00")
    assert (folder.size("a.txt"), folder.size("below/c/d")) == (4, 0)
    assert (folder.list(), folder.list("below")) == (["a.txt", "below"], ["b", "c"])
    assert folder.exists("below") and folder.exists("below/c/d")
    folder.write("a.txt", "b")
    assert folder.read("a.txt") == b"b"
    folder.delete("below")
    folder.delete("below")
    assert folder.list() == ["a.txt"] and not folder.exists("below")
    folder.delete("a.txt")
    assert not folder.exists("a.txt")


def test_what_is_not_there_is_no_error(folder):
    assert folder.read("none") is None and folder.size("none/at/all") is None
    assert folder.list() == folder.list("none") == [] and not folder.exists("none")
    folder.delete("none")


def test_what_tensorflow_writes_beside_is_seen_at_once(bucket):
    import tensorflow as tf

    folder = Folder(f"{bucket}/both")
    assert folder.list("checkpoints") == []
    tf.io.gfile.makedirs(folder.at("checkpoints/step-1"))  # an object "checkpoints/step-1/"
    with tf.io.gfile.GFile(folder.at("checkpoints/step-1/state"), "w") as file:
        file.write("x")
    assert folder.list("checkpoints") == ["step-1"]
    assert folder.list("checkpoints/step-1") == ["state"]
    assert folder.exists("checkpoints/step-1")
    folder.delete("checkpoints/step-1")
    assert folder.list("checkpoints") == [] and not folder.exists("checkpoints/step-1")


def test_a_folder_is_written_to_in_steps_and_named_at_the_end(tmp_path):
    folder = Folder(tmp_path)
    for text in ("one\n", "둘\n"):
        folder.append("log", text)
    folder.sync("log")
    assert folder.read("log") == "one\n둘\n".encode()
    folder.write(".new/state", "x")
    folder.rename(".new", "step-1")
    assert folder.list() == ["log", "step-1"] and folder.read("step-1/state") == b"x"
    # What a killed write left goes with the next.
    (tmp_path / ".log.left").touch()
    (tmp_path / ".b.txt.left").touch()
    folder.write("log", "x")
    assert folder.list() == [".b.txt.left", "log", "step-1"]


@pytest.mark.parametrize(
    ("act", "arguments"),
    [
        *(("write", ("file/x", "x")), ("append", ("file/x", "x"))),
        *(("sync", ("none",)), ("rename", ("none", "new"))),
    ],
)
def test_what_the_disk_refuses_is_told(tmp_path, act, arguments):
    (tmp_path / "file").touch()
    with pytest.raises(files.CantWrite, match="could not be written") as caught:
        getattr(Folder(tmp_path), act)(*arguments)
    assert "Check who owns the folder" in caught.value.fix


def test_a_full_disk_is_told_when_lines_are_added(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    folder = Folder(tmp_path)
    folder.append("log", "x")
    with pytest.raises(files.CantWrite, match=r"log could not be written\.\n.*The disk is full"):
        folder.sync("log")


@pytest.mark.parametrize(
    ("path", "ask", "words"),
    [
        ("", "read", "IsADirectory"),
        ("http://127.0.0.1:9", "read", "ClientConnector"),
        ("http://127.0.0.1:9", "list", "ClientConnector"),
    ],
)
def test_what_cant_be_read_is_told_and_is_not_taken_for_missing(tmp_path, path, ask, words):
    (tmp_path / "below").mkdir()
    with pytest.raises(CourseError, match=rf"could not be read\.\n.*{words}") as caught:
        getattr(Folder(path or tmp_path), ask)("below")
    assert "nothing was changed" in caught.value.fix


def test_an_address_is_told_from_a_path_and_a_bucket_that_is_not_there_is_told(bucket, tmp_path):
    with pytest.raises(files.CantWrite, match="x could not be written to the bucket"):
        Folder("gs://course-no-such-bucket/records").write("x", "x")
    assert [is_remote(path) for path in ("gs://b/c", tmp_path, "a:b/c")] == [True, False, False]
    assert Folder("gs://b/c/").at("x") == "gs://b/c/x"
