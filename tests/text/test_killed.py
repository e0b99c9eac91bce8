"""Kills, full disks, two commands at once: what is finished stays, the rest is written again."""

import os
import random
import signal
import subprocess
import sys

import psutil
import pytest
from conventions import ROOT
from plain import contents, finished, prepared, refused
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


@pytest.mark.parametrize("number", range(6))
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


def test_workers_end_with_the_process_that_was_killed(tmp_path, long_text):
    run = started("-i", long_text, "-o", tmp_path, "--shards", "60", "--workers", "2")
    assert wait_for(lambda: finished(tmp_path), 120)
    workers = [child.pid for child in psutil.Process(run.pid).children()]
    run.kill()
    run.communicate()
    assert len(workers) >= 2 and all(map(gone, workers)), "workers outlive their parent"


@pytest.mark.parametrize("stop", ["kill a worker", "Ctrl-C"])
def test_what_stops_the_command_is_told_and_the_same_command_goes_on(tmp_path, long_text, stop):
    words = ("-i", long_text, "--shards", "30")
    out = tmp_path / "out"
    run = started(*words, "-o", out, "--workers", "2", start_new_session=True)
    assert wait_for(lambda: finished(out), 120) and run.poll() is None
    if stop == "Ctrl-C":
        os.killpg(run.pid, signal.SIGINT)  # as a terminal does: to all processes
    else:
        family = psutil.Process(run.pid).children()
        next(child for child in family if "spawn_main" in str(child.cmdline())).kill()
    told = run.communicate(timeout=120)[1]
    wanted = {"Ctrl-C": (130, "Stopped. Finished shards are kept")}
    status, words_told = wanted.get(stop, (2, "One of the processes was killed"))
    assert run.returncode == status and words_told in told, told
    assert "Traceback" not in told
    before = finished(out)
    assert 0 < len(before) < 30
    for folder in (out, tmp_path / "alone"):
        assert started(*words, "-o", folder).wait() == 0
    assert before.items() <= finished(out).items()
    assert contents(out) == contents(tmp_path / "alone")


def test_of_two_commands_on_one_folder_at_once_one_is_refused_and_no_record_is_lost(
    tmp_path, long_text
):
    (tmp_path / "other.txt").write_text(long_text.read_text("utf-8").replace("a", "b"), "utf-8")
    out = tmp_path / "out"
    both = [started("-i", text, "-o", out) for text in (long_text, tmp_path / "other.txt")]
    told = [run.communicate()[1] for run in both]
    assert sorted(run.returncode for run in both) == [0, 2], told
    (refusal,) = [words for run, words in zip(both, told, strict=True) if run.returncode]
    assert "Another process writes" in refusal or "other settings" in refusal
    assert records.verify(out).documents == 54_000
    # Later, too: the folder is for the first text.
    late = [started("-i", text, "-o", out) for text in (long_text, tmp_path / "other.txt")]
    for run in late:
        run.communicate()
    assert 2 in [run.returncode for run in late]
    assert records.verify(out).documents == 54_000


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
        again = records.write(texts, tmp_path, ROOT / "notebooks/data/tokenizer.json",
                              sequence_length=64, shards=5)  # fmt: skip
        assert kept.items() <= finished(tmp_path).items() and again.shards == written.shards
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


def test_the_command_writes_nine_documents_in_ten_and_says_how_many(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("".join(f"문서 {number}번입니다.\n\n" for number in range(40)), "utf-8")
    said = call(*COMMAND, "-i", str(text), "-o", str(tmp_path / "out"), "--shards", "3")
    assert said.returncode == 0 and "36 documents" in said.stdout, said.stderr
    assert records.manifest(tmp_path / "out" / records.HELD_OUT).documents == 4
    wrong = call(*COMMAND, "-o", str(tmp_path / "out"), "--", "--project=mine")
    assert wrong.returncode == 2 and "stands alone" in wrong.stderr
    nowhere = call(*COMMAND, "-i", str(tmp_path / "none"), "-o", str(tmp_path / "new"))
    assert nowhere.returncode == 2 and "is not there" in nowhere.stderr
    assert not (tmp_path / "new").exists()
