"""A file is whole or absent, and a failed write says why."""

import os
import signal
import sys

import pytest
from terminal import call

from helpers.base import files, temporary


def test_a_file_is_written_with_its_folders_and_keeps_its_mode(tmp_path):
    path = tmp_path / "a/b.txt"
    files.write(path, "가\n")
    assert path.read_bytes() == "가\n".encode()
    (tmp_path / "usual").touch()
    assert path.stat().st_mode == (tmp_path / "usual").stat().st_mode
    path.chmod(0o600)
    files.write(path, iter([b"\x00", b"\x01"]))
    assert path.read_bytes() == b"\x00\x01"
    assert path.stat().st_mode & 0o777 == 0o600
    assert [p.name for p in path.parent.iterdir()] == ["b.txt"]
    link = tmp_path / "link"
    link.symlink_to(path)
    files.write(link, "through")
    assert link.is_symlink()
    assert path.read_text() == "through"


@pytest.mark.parametrize(("number", "words"), [(28, "The disk is full"), (13, "Permission denied")])
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
    with temporary.reserved_file(path) as unfinished:
        files.write(path, "new")
        assert {*tmp_path.iterdir()} == {path, unfinished}
