"""Kills, full disks, two commands at once: what is finished stays, the rest is written again."""

import os
import random
import signal
import subprocess
import sys

import filelock
import psutil
import pytest
from conventions import ROOT
from plain import contents, finished, prepared, refused, write
from terminal import call, gone, wait_for

from helpers.base import files
from helpers.text import records

pytestmark = pytest.mark.slow

COMMAND = (sys.executable, "-m", "helpers", "prepare", "--sequence-length", "64")

# Ends at the given call of what syncs or renames a file: kills fall where they hurt.
CHILD = """
import os, pathlib, signal, sys
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
sys.path.insert(0, "tpu_preflight/src")
from helpers.text import corpus, documents, records
records.write(documents.find(list(corpus.shipped().values())), sys.argv[1],
              corpus.kept_tokenizer(), sequence_length=64, shards=6, held_out=True)
"""


def started(*words, **options):
    quiet = {"stderr": subprocess.PIPE, "stdout": subprocess.DEVNULL, "text": True, "cwd": ROOT}
    return subprocess.Popen([*COMMAND, *map(str, words)], **quiet | options)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    prepared(folder)
    return folder


@pytest.mark.parametrize("number", range(4))
def test_killed_at_a_random_moment_and_run_again_gives_the_same_bytes(
    undisturbed, tmp_path, number
):
    words = (sys.executable, "-c", CHILD, str(tmp_path), str(random.Random(number).randint(2, 33)))
    killed = call(*words)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    before = finished(tmp_path)
    for shard in tmp_path.glob("shard-*.tfrecord"):  # whole or absent, described or not
        assert shard.read_bytes() == (undisturbed / shard.name).read_bytes()
    prepared(tmp_path)
    assert before.items() <= finished(tmp_path).items()
    assert contents(tmp_path) == contents(undisturbed)


@pytest.fixture(scope="module")
def long_text(tmp_path_factory, texts):
    path = tmp_path_factory.mktemp("long") / "text.txt"
    path.write_text("\n".join(texts * 100), "utf-8")
    return path


@pytest.mark.parametrize(
    ("stop", "status", "told"),
    [
        ("Ctrl-C", 130, "Stopped. Finished shards are kept"),
        ("kill a worker", 2, "One of the processes was killed"),
        ("kill", -signal.SIGKILL, ""),
    ],
)
def test_what_stops_the_command_is_told_and_the_same_command_goes_on(
    tmp_path, long_text, stop, status, told
):
    words = ("-i", long_text, "--shards", "30")
    out = tmp_path / "out"
    run = started(*words, "-o", out, "--workers", "2", start_new_session=True)
    assert wait_for(lambda: finished(out), 120) and run.poll() is None
    family = psutil.Process(run.pid).children()
    if stop == "Ctrl-C":
        os.killpg(run.pid, signal.SIGINT)  # as a terminal does: to all processes
    elif stop == "kill":
        run.kill()
    else:
        next(child for child in family if "spawn_main" in str(child.cmdline())).kill()
    said = run.communicate(timeout=120)[1]
    assert run.returncode == status and told in said and "Traceback" not in said, said
    assert len(family) >= 2 and all(gone(child.pid) for child in family)
    before = finished(out)
    assert 0 < len(before) < 30
    for folder in (out, tmp_path / "alone"):
        assert started(*words, "-o", folder).wait() == 0
    assert before.items() <= finished(out).items()
    assert contents(out) == contents(tmp_path / "alone")


def test_a_folder_that_another_process_writes_to_is_left_alone(tmp_path, texts):
    with filelock.FileLock(tmp_path / ".lock"):
        refused("Another process writes", texts, tmp_path)
        assert not finished(tmp_path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small file system")
def test_a_full_disk_is_told_and_the_run_goes_on_with_more_room(tmp_path, texts, written):
    mount = ["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", str(tmp_path)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting is not allowed here")
    try:
        error = refused("disk is full", texts, tmp_path, error=files.CantWrite)
        assert "nothing already written is lost" in error.fix
        subprocess.run(["mount", "-o", "remount,size=2m", str(tmp_path)], check=True)
        kept = finished(tmp_path)
        again = write(texts, tmp_path)
        assert kept.items() <= finished(tmp_path).items() and again.shards == written.shards
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


def test_the_command_writes_nine_documents_in_ten_and_says_how_many(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("".join(f"문서 {number}번입니다.\n\n" for number in range(40)), "utf-8")
    said = call(*COMMAND, "-i", str(text), "-o", str(tmp_path / "out"), "--shards", "3")
    assert said.returncode == 0 and "36 documents" in said.stdout, said.stderr
    assert records.manifest(tmp_path / "out" / records.HELD_OUT).documents == 4
