"""What a command writes: temporary files that go, and files of yours that stay."""

import pathlib
import subprocess
import sys
import tempfile

import psutil
from conventions import ROOT
from terminal import gone, wait_for

from course import outputs, processes

KILLED_COMMAND = """
import os, subprocess, tempfile
from course.processes import temporary
with temporary():
    tempfile.mkdtemp()
    print(subprocess.Popen(["sleep", "612"], stdout=2, stderr=0).pid, flush=True)
    os.kill(os.getpid(), 9)
"""


def test_a_command_ends_what_a_killed_one_left(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    command = [sys.executable, "-c", KILLED_COMMAND]
    output = subprocess.run(command, stdout=subprocess.PIPE, cwd=ROOT).stdout
    child = int(output)
    own_file = tmp_path / ".tpu-course.notes"
    own_file.touch()
    with processes.temporary():
        assert gone(child)
        assert pathlib.Path(tempfile.gettempdir()).parent == tmp_path
        assert own_file in set(tmp_path.iterdir())
    assert list(tmp_path.iterdir()) == [own_file]
    assert tempfile.gettempdir() == str(tmp_path)


def test_a_daemon_that_hides_ends_with_the_block(tmp_path):
    daemon = "setsid env -i sh -c 'echo $$ >pid; exec sleep 614' & wait $!; sleep 615"
    earlier_child = subprocess.Popen(["sleep", "616"])
    with processes.daemons_ended():
        parent = subprocess.Popen(["sh", "-c", daemon], cwd=tmp_path, start_new_session=True)
        wait_for(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().strip())
        parent.kill()
        parent.wait()
    assert not psutil.pid_exists(int((tmp_path / "pid").read_text()))
    assert earlier_child.poll() is None
    earlier_child.kill()


def test_what_was_changed_since_it_was_written_is_kept(tmp_path, capsys):
    path = tmp_path / "a/b.txt"
    earlier = tmp_path / "earlier"
    for text in ("one", "two"):
        outputs.write_own(path, text, earlier)
    assert not list(earlier.glob("2*"))
    assert capsys.readouterr().err == ""
    path.write_text("mine")
    outputs.write_own(path, "three", earlier)
    assert path.read_text() == "three"
    assert [copy.read_text() for copy in earlier.glob("2*/a/b.txt")] == ["mine"]
    assert "b.txt was not as written here last" in capsys.readouterr().err
    outputs.write_own(path, "four", tmp_path / "other")  # it isn't known there what was written
    assert "b.txt is written anew; as it was" in capsys.readouterr().err
