"""Kills, full disks and workers: what is finished stays, and the rest is written again."""

import os
import pathlib
import random
import subprocess
import sys
import time

import psutil
import pytest
from conventions import ROOT
from forks import Forks
from plain import contents, finished, refused, write
from terminal import call, gone

from helpers.base import files

pytestmark = pytest.mark.slow

# open, write, sync or rename a file: kills fall where they hurt, however fast the machine is.
CHILD = """
import os, pathlib, signal, sys
from helpers.text import prepare
from helpers.text.records.writing import sorting
sorting.RUN_BYTES = 100_000  # so that the disk is needed
left = int(sys.argv[2])
def counted(call):
    def counting(*arguments, **options):
        global left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return call(*arguments, **options)
    return counting
os.fsync = counted(os.fsync)
pathlib.Path.replace = counted(pathlib.Path.replace)
pathlib.Path.chmod = counted(pathlib.Path.chmod)
pathlib.Path.read_bytes = counted(pathlib.Path.read_bytes)
for line in prepare.prepare(sys.argv[1], texts=None, tokenizer=None, sequence_length=64, shards=6,
                            workers=1, seed=0):
    pass
"""


@pytest.fixture(scope="module")
def child():
    with Forks(["helpers.text.prepare", "helpers.text.corpus"], os.environ) as forks:
        yield lambda output, calls: forks.start(CHILD, output, calls, kept=output.parent)


@pytest.fixture(scope="module")
def undisturbed(child, tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed") / "out"
    start = time.perf_counter()
    done = child(folder, -1).wait()
    assert done.returncode == 0, done.stderr
    return folder, time.perf_counter() - start


@pytest.mark.parametrize("number", range(20))
def test_killed_at_a_random_moment_and_run_again_gives_the_same_bytes(
    undisturbed, child, tmp_path, number
):
    (wanted, seconds), output = undisturbed, tmp_path / "out"
    draw = random.Random(number)
    if number % 2:  # by the clock
        run = child(output, -1)
        time.sleep(draw.uniform(0.1, 1.0) * seconds)
        run.kill()
    else:  # by the call
        run = child(output, draw.randint(2, 60))
    run.wait()
    before = finished(output)
    for path in output.glob("shard-*.tfrecord"):  # whole or absent, described or not
        assert path.read_bytes() == (wanted / path.name).read_bytes()
    again = child(output, -1).wait()
    assert again.returncode == 0, again.stderr
    assert before.items() <= finished(output).items()
    assert contents(output) == contents(wanted)


def test_workers_end_with_the_process_that_was_killed(tmp_path, texts):
    (tmp_path / "texts").write_text("\n".join(texts * 300))
    words = ["-i", tmp_path / "texts", "-o", tmp_path / "out", "--shards", "6", "--workers", "2"]
    run = subprocess.Popen(
        [sys.executable, "-m", "helpers", "prepare", *words], cwd=ROOT, stderr=subprocess.DEVNULL
    )
    children = pathlib.Path(f"/proc/{run.pid}/task/{run.pid}/children")
    workers = []
    while len(workers) < 3:  # two workers and Python's resource tracker
        assert run.poll() is None
        workers = children.read_text().split()
        time.sleep(0.02)
    run.kill()
    run.wait()
    assert all(gone(int(pid)) for pid in workers), "workers outlive their parent"


def test_a_killed_worker_is_told_and_the_same_command_goes_on(tmp_path):
    words = ("-m", "helpers", "prepare", "--shards", "60", "--sequence-length", "64")
    call(sys.executable, *words, "-o", tmp_path / "alone")
    words = (*words, "-o", tmp_path / "out", "--workers", "2")
    run = subprocess.Popen([sys.executable, *words], cwd=ROOT, stderr=subprocess.PIPE, text=True)
    while not finished(tmp_path / "out"):
        assert run.poll() is None
        time.sleep(0.01)
    workers = [p for p in psutil.Process(run.pid).children() if "spawn_main" in str(p.cmdline())]
    workers[0].kill()
    told = run.communicate(timeout=60)[1]
    assert run.returncode == 2 and "One of the processes was killed" in told, told
    before = finished(tmp_path / "out")
    assert 0 < len(before) < 60
    assert call(sys.executable, *words).returncode == 0
    assert before.items() <= finished(tmp_path / "out").items()
    assert contents(tmp_path / "out") == contents(tmp_path / "alone")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small file system")
def test_a_full_disk_is_told_and_the_run_goes_on_with_more_room(tmp_path, texts, written):
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting is not allowed here")
    try:
        refused("disk is full", texts, disk, error=files.CantWrite)
        kept = finished(disk)
        assert kept
        subprocess.run(["mount", "-o", "remount,size=2m", str(disk)], check=True)
        write(texts, disk)
        assert kept.items() <= finished(disk).items()
        assert contents(disk) == contents(written.path)
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_every_full_disk_is_told_alike(tmp_path, texts, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    error = refused("disk is full", texts, tmp_path, error=files.CantWrite)
    assert "nothing already written is lost" in error.fix
    assert not list(tmp_path.iterdir())
