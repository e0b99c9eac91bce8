"""What a command writes: temporary files that go, and files of yours that stay."""

import pathlib
import subprocess
import sys
import tempfile

from conventions import ROOT
from terminal import gone

from course import outputs, processes


def test_a_command_ends_what_one_left_that_was_killed(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    script = (
        "import os, subprocess, tempfile; from course.processes import temporary\n"
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
        outputs.write_own(path, text, kept)
    assert not [*kept.glob("2*")] and capsys.readouterr().err == ""
    path.write_text("mine")
    outputs.write_own(path, "three", kept)
    assert path.read_text() == "three"
    assert [p.read_text() for p in kept.glob("2*/a/b.txt")] == ["mine"]
    assert "b.txt was not as written here last" in capsys.readouterr().err
    outputs.write_own(path, "four", tmp_path / "other")  # where nobody knows what was written
    assert "b.txt is written anew; as it was" in capsys.readouterr().err
