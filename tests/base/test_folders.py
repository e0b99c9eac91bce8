"""One set of operations on the disk and in a bucket: the same answers."""

import os
import unittest.mock

import gcsfs
import pytest

from helpers import runtime
from helpers.base import files, folders
from helpers.base.errors import CourseError
from helpers.base.folders import Folder

runtime.setup()


@pytest.fixture(params=["disk", "bucket"])
def folder(request, tmp_path):
    if request.param == "bucket":
        return Folder(f"{request.getfixturevalue('gs').url}/{tmp_path.name}/")
    return Folder(tmp_path)


def test_what_is_written_is_read_listed_and_deleted(folder):
    assert folder.read("a.txt") is None  # which is no error
    assert not folder.exists("below")
    assert folder.list() == folder.list("below") == []
    folder.delete("below")
    folder.write("a.txt", "가\n")
    folder.write("below/b", iter([b"\0", b"\1\2"]))
    folder.write("below/c/d", "")
    assert (folder.read("a.txt"), folder.read("below/b")) == ("가\n".encode(), b"\0\1\2")
    assert folder.sizes() == {"a.txt": 4}
    assert b"".join(folder.pieces("below/b")) == b"\0\1\2"
    assert (folder.list(), folder.list("below")) == (["a.txt", "below"], ["b", "c"])
    assert folder.exists("below")
    assert folder.exists("below/c/d")
    folder.write("a.txt", "b")
    assert folder.read("a.txt") == b"b"
    folder.delete("below")
    assert folder.list() == ["a.txt"]
    assert not folder.exists("below")


def test_what_a_killed_write_left_goes_and_one_process_at_a_time_writes(tmp_path):
    folder = Folder(tmp_path)
    folder.write("log", "one\n")
    for name in (".log.0123456789abcdef", ".log.bak", ".log.20261126", ".b.txt.0123456789abcdef"):
        (tmp_path / name).touch()
    folder.write("log", "x")
    assert folder.list() == [".b.txt.0123456789abcdef", ".log.20261126", ".log.bak", "log"]
    with folder.alone(), pytest.raises(CourseError, match="Another process writes"):
        folder.alone()
    (tmp_path / "other/.lock").mkdir(parents=True)
    with folder.alone(), pytest.raises(files.CantWrite, match="Is a directory"):
        Folder(tmp_path / "other").alone()
    Folder(tmp_path / "third").write(".lock", "mine")
    with pytest.raises(CourseError, match="lock from another program"):
        Folder(tmp_path / "third").alone()
    assert (tmp_path / "third/.lock").read_text() == "mine"


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("file", "A file is where a folder must be"),
        ("file/below/it", "A file is where a folder must be"),
        ("link", "No such file"),
        ("글" * 100, "name too long"),
        ("new/below", None),
    ],
)
def test_a_folder_that_can_not_be_written_to_is_told_before(tmp_path, name, told):
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("/nowhere/disk")
    before, folder = sorted(tmp_path.iterdir()), Folder(tmp_path / name)
    if told is None:
        folder.check()
    else:
        with pytest.raises(files.CantWrite, match=told):
            folder.check()
    assert sorted(tmp_path.iterdir()) == before


def test_what_is_no_file_or_too_large_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(folders, "LARGEST", 3)
    folder = Folder(tmp_path)
    folder.write("small", "abc")
    folder.write("large", "abcd")
    os.mkfifo(tmp_path / "pipe")  # it would be waited for
    (tmp_path / "endless").symlink_to("/dev/zero")
    assert folder.read("small") == b"abc"
    for name in ("large", "pipe", "endless", "."):
        with pytest.raises(CourseError, match="can't be read"):
            folder.read(name)


def test_names_that_are_usual_stay_and_the_home_folder_is_found(monkeypatch):
    for name in ("out", "./a b/../c", "기록", "a:b/c", "gs://mine/a b", "gs"):
        assert (Folder(name).path, Folder(name).remote) == (name, name.startswith("gs:"))
    for name in ("gcs:/mine/out", "gs:///out", os.fsdecode("기록".encode("cp949"))):
        with pytest.raises(CourseError, match=r"gs://BUCKET/FOLDER|is not UTF-8[\s\S]*convmv"):
            Folder(name)
    monkeypatch.setenv("HOME", "/home/me")
    assert Folder("~/out/").at("x") == "/home/me/out/x"


@pytest.mark.parametrize("ask", ["read", "list"])
def test_what_cant_be_read_is_told_and_is_not_taken_for_missing(folder, monkeypatch, ask):
    def silent(*_, **__):
        raise ConnectionError("no way there")

    for name in ("info", "cat_file", "ls"):
        monkeypatch.setattr(folder._files, name, silent)
    with pytest.raises(CourseError, match=r"could not be read\.\n.*ConnectionError") as caught:
        getattr(folder, ask)("below")
    assert "nothing was changed" in caught.value.fix


def test_a_bucket_is_asked_before_a_run_and_nothing_is_left_there(gs, monkeypatch):
    folder = Folder(f"{gs.url}/asked")
    folder.check()
    assert folder.list() == []
    refused = gcsfs.retry.HttpError({"code": 403, "message": "The account lacks it."})
    monkeypatch.setattr(folder._files, "pipe_file", unittest.mock.Mock(side_effect=refused))
    with pytest.raises(files.CantWrite, match="The account lacks it") as caught:
        folder.check()
    assert "application-default login" in caught.value.fix
