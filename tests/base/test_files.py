"""A file is whole or absent, and a failed write says why."""

import errno
import os
import signal
import sys

import pytest
from terminal import call

from helpers.base import files


def test_text_and_bytes_are_written_and_folders_made(tmp_path):
    files.write(tmp_path / "a/b.txt", "가\n")
    assert (tmp_path / "a/b.txt").read_bytes() == "가\n".encode()
    files.write(tmp_path / "a/b.txt", b"\x00")
    assert (tmp_path / "a/b.txt").read_bytes() == b"\x00"
    assert [p.name for p in (tmp_path / "a").iterdir()] == ["b.txt"]


def test_a_new_file_has_the_usual_mode_and_an_old_one_keeps_its_own(tmp_path):
    (tmp_path / "usual").touch()
    files.write(tmp_path / "new", "x")
    assert (tmp_path / "new").stat().st_mode == (tmp_path / "usual").stat().st_mode
    (tmp_path / "usual").chmod(0o600)
    files.write(tmp_path / "usual", "x")
    assert (tmp_path / "usual").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("number", "words"), [(errno.ENOSPC, "The disk is full"), (errno.EACCES, "Permission denied")]
)
def test_a_failed_write_is_told_and_leaves_the_old_content(tmp_path, monkeypatch, number, words):
    path = tmp_path / "kept.txt"
    path.write_text("old")

    def fail(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(files.CantWrite, match=words):
        files.write(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_killed_writer_leaves_the_old_content(tmp_path):
    path = tmp_path / "kept.txt"
    path.write_text("old")
    script = (
        "import os, pathlib, sys; from helpers.base import files\n"
        "os.fsync = lambda _: os.kill(os.getpid(), 9)\n"
        "files.write(pathlib.Path(sys.argv[1]), 'new')"
    )
    assert call(sys.executable, "-c", script, path).returncode == -signal.SIGKILL
    assert path.read_text() == "old"
