"""A file is whole or absent, and a failed write says why."""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile

import pytest
from conventions import ROOT
from terminal import call, gone

from helpers.base import files, processes


def test_a_file_is_written_with_its_folders_and_keeps_its_mode(tmp_path):
    path = tmp_path / "a/b.txt"
    files.write(path, "가\n")
    assert path.read_bytes() == "가\n".encode()
    (tmp_path / "usual").touch()
    assert path.stat().st_mode == (tmp_path / "usual").stat().st_mode
    path.chmod(0o600)
    files.write(path, iter([b"\x00", b"\x01"]))
    assert path.read_bytes() == b"\x00\x01" and path.stat().st_mode & 0o777 == 0o600
    assert [p.name for p in path.parent.iterdir()] == ["b.txt"]
    (link := tmp_path / "link").symlink_to(path)
    files.write(link, "through")
    assert link.is_symlink() and path.read_text() == "through"


@pytest.mark.parametrize(("number", "words"), [(28, "The disk is full"), (13, "Permission denied")])
def test_a_failed_write_is_told_and_leaves_the_old_content(tmp_path, monkeypatch, number, words):
    path = tmp_path / "kept.txt"
    path.write_text("old")

    def fail(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(files.CantWrite, match=words):
        files.write(path, "new")
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


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
    (atwork := processes.beside(path)).touch()
    files.write(path, "new")
    assert {*tmp_path.iterdir()} == {path, atwork}


def test_a_command_ends_what_one_left_that_was_killed(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    script = (
        "import os, subprocess, tempfile; from helpers.base.processes import temporary\n"
        "with temporary():\n    tempfile.mkdtemp()\n"
        "    print(subprocess.Popen(['sleep', '612'], stdout=2, stderr=0).pid, flush=True)\n"
        "    os.kill(os.getpid(), 9)"
    )
    left = int(subprocess.run([sys.executable, "-c", script], stdout=-1, cwd=ROOT).stdout)
    (mine := tmp_path / ".tpu-course.notes").touch()
    with processes.temporary():
        assert gone(left) and {*tmp_path.iterdir()} == {mine, pathlib.Path(tempfile.gettempdir())}
    assert [*tmp_path.iterdir()] == [mine] and tempfile.gettempdir() == str(tmp_path)


def test_what_was_changed_since_it_was_written_is_kept(tmp_path, capsys):
    path, kept = tmp_path / "a/b.txt", tmp_path / "kept"
    for text in ("one", "two"):
        files.write_own(path, text, kept)
    assert not [*kept.glob("2*")] and capsys.readouterr().err == ""
    path.write_text("mine")
    files.write_own(path, "three", kept)
    assert path.read_text() == "three"
    assert [p.read_text() for p in kept.glob("2*/a/b.txt")] == ["mine"]
    assert "b.txt was not as written here last" in capsys.readouterr().err
    files.write_own(path, "four", tmp_path / "other")  # where nobody knows what was written
    assert "b.txt is written anew; as it was" in capsys.readouterr().err
