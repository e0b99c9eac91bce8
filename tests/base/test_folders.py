"""One set of operations on the disk and in a bucket: the same answers."""

import os

import pytest

from helpers import runtime
from helpers.base import files
from helpers.base.errors import CourseError
from helpers.base.folders import Folder, address, is_remote

runtime.setup()


@pytest.fixture(params=["disk", "bucket"])
def folder(request, tmp_path):
    if request.param == "bucket":
        return Folder(f"{request.getfixturevalue('gs').url}/{tmp_path.name}/")
    return Folder(tmp_path)


def test_what_is_written_is_read_listed_and_deleted(folder):
    folder.write("a.txt", "가\n")
    folder.write("below/b", b"\x00\x01\x02")
    folder.write("below/c/d", "")
    assert folder.read("a.txt") == "가\n".encode()
    assert (folder.read("below/b"), folder.read("below/b", limit=1)) == (b"\x00\x01\x02", b"\x00")
    assert folder.sizes() == {"a.txt": 4} and b"".join(folder.pieces("below/b")) == b"\0\1\2"
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
    assert folder.read("none") is None
    assert folder.list() == folder.list("none") == [] and not folder.exists("none")
    folder.delete("none")


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
    ("act", "arguments", "why"),
    [
        ("write", ("file/x", "x"), "A file stands where a folder must be"),
        ("write", ("글" * 100, "x"), "name is too long"),
        ("rename", ("none", "new"), "is gone"),
    ],
)
def test_what_the_disk_refuses_is_told(tmp_path, act, arguments, why):
    (tmp_path / "file").touch()
    with pytest.raises(files.CantWrite, match=rf"could not be written\.\n.*{why}"):
        getattr(Folder(tmp_path), act)(*arguments)


def link(path):
    path.symlink_to("/nowhere/disk")


@pytest.mark.parametrize(
    ("make", "name", "why"),
    [
        (os.mkdir, "out", None),
        (os.mkdir, "out/below/it", None),
        (link, "out", "a link leads nowhere"),
    ],
)
def test_a_folder_that_can_not_be_made_is_told_and_not_made(tmp_path, make, name, why):
    make(tmp_path / "out")
    before = list(tmp_path.rglob("*"))
    if why is None:
        Folder(tmp_path / name).check()
    else:
        with pytest.raises(files.CantWrite, match=why):
            Folder(tmp_path / name).check()
    assert list(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("", "It is empty"),
        ("gcs:/mine/out", "(?s)One slash.*Write gs://BUCKET"),
        ("gcs://mine/out", "doesn't know gcs"),
        ("gs:///out", "no bucket"),
        ("s3://mine/out", "gs:// alone"),
    ],
)
def test_a_name_that_would_be_misunderstood_is_refused(name, why):
    with pytest.raises(CourseError, match=why):
        Folder(name)


def test_names_that_are_usual_stay_and_the_home_folder_is_found(monkeypatch):
    for name in ("out", "./a b/../c", "기록", "a:b/c", "gs://mine/a b", "gs"):
        assert address(name) == name
    monkeypatch.setenv("HOME", "/home/me")
    assert address("~/out") == "/home/me/out"


@pytest.mark.parametrize("ask", ["read", "list"])
def test_what_cant_be_read_is_told_and_is_not_taken_for_missing(folder, monkeypatch, ask):
    def silent(*_, **__):
        raise ConnectionError("no way there")

    for name in ("cat_file", "ls"):
        monkeypatch.setattr(folder._files, name, silent)
    with pytest.raises(CourseError, match=r"could not be read\.\n.*ConnectionError") as caught:
        getattr(folder, ask)("below")
    assert "nothing was changed" in caught.value.fix


def test_an_address_is_told_from_a_path_and_a_bucket_that_is_not_there_is_told(gs, tmp_path):
    with pytest.raises(files.CantWrite, match="x could not be written to the bucket"):
        Folder("gs://course-no-such-bucket/records").write("x", "x")
    assert [is_remote(path) for path in ("gs://b/c", tmp_path, "a:b/c")] == [True, False, False]
    assert Folder("gs://b/c/").at("x") == "gs://b/c/x"
