"""What is being written is left alone while its process lives, in any container; then it goes."""

import contextlib
import os
import pathlib
import signal
import subprocess
import sys

import pytest
from conventions import ROOT
from terminal import call, wait_for

from helpers.base import files, temporary

# Reserves a file, or writes one slowly, until its standard input ends.
HOLDER = """
import pathlib, sys
from helpers.base import files, temporary

path = pathlib.Path(sys.argv[2])

def pieces():
    yield b"first"
    print(*path.parent.glob(f".{path.name}.*"), flush=True)
    sys.stdin.read()

if sys.argv[1] == "write":
    files.write(path, pieces())
else:
    with temporary.reserved_folder(path) as folder:
        print(folder, flush=True)
        sys.stdin.read()
"""


@contextlib.contextmanager
def holder(action, path, *before):
    """Run `HOLDER` in another process, after the words of a command; give what it prints."""
    command = [*before, sys.executable, "-c", HOLDER, action, str(path)]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process, pathlib.Path(process.stdout.readline().strip())
        finally:
            process.kill()


def own_pids():
    """Give the words before a command that put it in a PID namespace, as a container does."""
    words = ["unshare", "--pid", "--fork", "--kill-child"]
    if os.getuid() != 0:
        words.append("--map-root-user")
    if subprocess.run([*words, "true"], capture_output=True).returncode:
        pytest.skip("this machine permits no namespaces")
    return words


@pytest.mark.parametrize("action", ["write", "reserve"])
def test_what_a_process_of_another_pid_namespace_writes_is_left_alone(tmp_path, action):
    path = tmp_path / "shared"
    with holder(action, path, *own_pids()) as (process, unfinished):
        assert unfinished.exists()
        assert list(temporary.leftovers(path)) == []
        if action == "write":
            files.write(path, "meanwhile")
            assert unfinished.exists()
        process.communicate("")
        assert process.returncode == 0
    assert path.exists() == (action == "write")
    assert not unfinished.exists()


def test_a_process_of_another_pid_namespace_leaves_alone_what_this_one_writes(tmp_path):
    path = tmp_path / "shared"
    script = (
        "import pathlib, sys\n"
        "from helpers.base import files\n"
        "files.write(pathlib.Path(sys.argv[1]), 'meanwhile')\n"
    )
    with holder("write", path) as (process, unfinished):
        process_inside = call(*own_pids(), sys.executable, "-c", script, str(path))
        assert process_inside.returncode == 0, process_inside.stderr
        assert path.read_text() == "meanwhile"
        assert unfinished.exists()
        process.communicate("")
        assert process.returncode == 0
    assert path.read_text() == "first"


@pytest.mark.parametrize("action", ["write", "reserve"])
def test_what_a_killed_process_left_is_found_once_it_is_dead(tmp_path, action):
    path = tmp_path / "shared"
    with holder(action, path) as (process, unfinished):
        process.kill()
        process.wait()
        assert list(temporary.leftovers(path)) == [unfinished]


FORK = """
import os, pathlib, sys, time
from helpers.base import temporary

with temporary.reserved_file(pathlib.Path(sys.argv[1])) as file:
    child = os.fork()
    if child == 0:
        time.sleep(60)
    print(child, file, flush=True)
    os.kill(os.getpid(), 9)
"""


def test_a_fork_does_not_keep_its_parents_lock(tmp_path):
    path = tmp_path / "shared"
    command = [sys.executable, "-c", FORK, str(path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        child, unfinished = process.stdout.readline().split()
        process.wait()
        try:
            assert wait_for(lambda: list(temporary.leftovers(path)) == [pathlib.Path(unfinished)])
        finally:
            os.kill(int(child), signal.SIGKILL)


def test_a_disk_without_locks_keeps_everything(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError("no locks on this disk")

    path = tmp_path / "shared"
    leftover = tmp_path / ".shared.0123456789abcdef"
    leftover.touch()
    monkeypatch.setattr(temporary.fcntl, "flock", refuse)
    files.write(path, "text")
    assert path.read_text() == "text"
    assert {*tmp_path.iterdir()} == {path, leftover}
