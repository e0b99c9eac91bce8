"""Kills and Ctrl-C, two commands at once: what is finished stays, the rest is written again."""

import concurrent.futures
import functools
import os
import random
import signal
import subprocess
import sys
import unittest.mock

import psutil
import pytest
from conventions import ROOT
from record_files import contents, finished, prepared
from terminal import call, gone, wait_for

from course import runners
from helpers.base.errors import CourseError

pytestmark = pytest.mark.slow

COMMAND = [sys.executable, "-m", "course", "prepare", "--sequence-length", "64"]

# Ends as it syncs a file for the given time: kills fall where they hurt.
CHILD = """
import itertools, os, sys
left, sync = itertools.count(1), os.fsync
os.fsync = lambda file: os.kill(os.getpid(), 9) if next(left) == int(sys.argv[2]) else sync(file)
sys.path.insert(0, "tpu_preflight/src")
from course import documents
from helpers.text import corpus, records
records.write(documents.find(list(corpus.shipped().values())), sys.argv[1],
              corpus.kept_tokenizer(), sequence_length=64, shards=6, held_out=True)
"""


def started(*words, **options):
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup a child would ignore it
    quiet = {"stderr": subprocess.PIPE, "stdout": subprocess.DEVNULL, "text": True, "cwd": ROOT}
    return subprocess.Popen([*COMMAND, *map(str, words)], **quiet, **options)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    prepared(folder)
    return folder


@pytest.mark.parametrize(
    "number",
    [0, *(pytest.param(number, marks=pytest.mark.long) for number in range(1, 4))],
)
def test_killed_at_a_random_moment_and_run_again_gives_the_same_bytes(
    undisturbed, tmp_path, number
):
    moment = random.Random(number).randint(2, 17)
    killed = call(sys.executable, "-c", CHILD, str(tmp_path), str(moment))
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    before_the_second_run = finished(tmp_path)
    for shard in tmp_path.glob("shard-*.tfrecord"):  # whole or absent, described or not
        assert shard.read_bytes() == (undisturbed / shard.name).read_bytes()
    prepared(tmp_path)
    assert before_the_second_run.items() <= finished(tmp_path).items()
    assert contents(tmp_path) == contents(undisturbed)


def test_a_machine_without_semaphores_is_told(tmp_path, monkeypatch):
    # What multiprocessing raises without /dev/shm:
    error = FileNotFoundError(2, "No such file or directory")
    pool = unittest.mock.Mock(side_effect=error)
    monkeypatch.setattr(concurrent.futures, "ProcessPoolExecutor", pool)
    run = functools.partial(runners.by_processes, workers=2)
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGHUP)]
    with pytest.raises(CourseError, match=r"side by side(.|\n)*/dev/shm(.|\n)*--workers"):
        prepared(tmp_path / "out", run=run)
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGHUP)] == handlers


AT_ALL = {"Ctrl-C": signal.SIGINT, "close the terminal": signal.SIGHUP}


@pytest.fixture(scope="module")
def long_text(tmp_path_factory, texts):
    path = tmp_path_factory.mktemp("long") / "text.txt"
    path.write_text("\n".join(texts * 100), "utf-8")
    return path


@pytest.mark.long
@pytest.mark.parametrize(
    ("stop", "status", "message"),
    [
        ("Ctrl-C", 130, "Stopped. Finished shards are kept"),
        ("close the terminal", 129, ""),
        ("kill a worker", 2, "One of the processes was killed"),
        ("kill", -signal.SIGKILL, ""),
    ],
)
def test_what_stops_the_command_is_told_and_the_same_command_goes_on(
    tmp_path, long_text, stop, status, message
):
    words = ("-i", long_text, "--shards", "30")
    out = tmp_path / "out"
    run = started(*words, "-o", out, "--workers", "2", start_new_session=True)
    assert wait_for(lambda: finished(out), 120)
    assert run.poll() is None
    family = psutil.Process(run.pid).children()
    if stop in AT_ALL:  # as a terminal does: to all processes
        os.killpg(run.pid, AT_ALL[stop])
    elif stop == "kill":
        run.kill()
    else:
        workers = [child for child in family if "spawn_main" in str(child.cmdline())]
        workers[0].kill()
    _, errors = run.communicate(timeout=120)
    assert run.returncode == status, errors
    assert message in errors
    assert "Traceback" not in errors
    assert len(family) >= 2
    for child in family:
        assert gone(child.pid)
    shards_so_far = finished(out)
    assert 0 < len(shards_so_far) < 30
    if stop in AT_ALL:
        assert not list(out.glob(".shard-*"))  # nothing half written
    for folder in (out, tmp_path / "undisturbed"):
        assert started(*words, "-o", folder).wait() == 0
    assert shards_so_far.items() <= finished(out).items()
    assert contents(out) == contents(tmp_path / "undisturbed")
