"""A late task is given up; a child that dies, hangs or eats memory says how it ended."""

import contextlib
import os
import subprocess
import sys
import tempfile

import psutil
import pytest

from tpu_preflight.processes import CODE, Child, NoAnswer, own_folder

CHILD = """
import os, signal, subprocess, sys, time
from tpu_preflight import processes

def answer(job, data, tell):
    tell("working")
    exec(job["do"])
    return {"read": sys.stdin.read()}, data[::-1]

processes.serve(answer)
"""

HUNGRY, LITTLE = "x = b'x' * 10**9; __import__('time').sleep(60)", {"most_memory": 500_000_000}


@pytest.fixture
def child(tmp_path):
    (tmp_path / "mine.py").write_text(CHILD)
    there = os.environ | {"PYTHONPATH": str(tmp_path)}
    with contextlib.closing(Child("mine", there, tmp_path)) as it:
        yield it


def children() -> set[psutil.Process]:
    return set(psutil.Process().children(recursive=True))


def test_a_child_answers_whatever_is_printed_read_or_forked(child):
    stages = []
    noise = "print('noise', flush=True); os.write(4, b'{}, no end')"
    for do in (noise, "os.fork()", "os.fork() or sys.exit()"):
        job = {"do": do}, b"abc" * 10**6
        told, data = child.ask(*job, timeout=60, progress=lambda s, _: stages.append(s))
        assert (told["read"], data, stages[-1]) == ("", b"cba" * 10**6, "working")


@pytest.mark.parametrize(
    ("do", "limits", "cause"),
    [
        ("print('why'); sys.exit(3)", {}, "with status 3"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", {}, "by SIGSEGV"),
        ("os.fork() and os.abort(); time.sleep(60)", {}, "by SIGABRT"),  # a child holds the pipe
        ("os.write(4, processes.MARK + b'cut off\\n')", {}, "its answers, but not itself"),
        ("os.closerange(3, 99); time.sleep(60)", {}, "its answers, but not itself"),
        ("subprocess.run(['sleep', '60'])", {"timeout": 2}, "time"),
        (f"subprocess.run([sys.executable, '-c', {HUNGRY!r}])", LITTLE, "memory"),
        (HUNGRY, LITTLE, "memory"),
    ],
)
def test_a_child_that_gives_no_answer_says_why_and_another_is_started(child, do, limits, cause):
    before = children()  # a compiler of other tests may wait there for its next job
    with pytest.raises(NoAnswer) as told:
        child.ask({"do": do}, **{"timeout": 60} | limits)
    assert (told.value.cause, told.value.stage) == (cause, "working")
    assert told.value.lines == (["why"] if "why" in do else [])
    assert children() <= before
    assert child.ask({"do": ""}, b"ab", timeout=60)[1] == b"ba"


def test_an_error_of_the_progress_or_an_interruption_ends_a_child(child):
    def interrupt(stage, seconds):
        raise KeyboardInterrupt

    before = children()
    with pytest.raises(KeyboardInterrupt):
        child.ask({"do": "time.sleep(60)"}, timeout=60, progress=interrupt)
    assert children() <= before


def test_what_killed_processes_left_is_removed_and_nothing_else(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "tpu-preflight-results").mkdir()  # the user's
    killed = "from tpu_preflight.processes import *; it = own_folder(); it.__enter__(); os.abort()"
    with own_folder() as used:
        subprocess.run([sys.executable, "-c", killed], cwd=CODE, env={"TMPDIR": str(tmp_path)})
        assert len([*tmp_path.iterdir()]) == 3
        with own_folder() as new:
            left = {str(path) for path in tmp_path.iterdir()}
            assert left == {used, new, str(tmp_path / "tpu-preflight-results")}
    assert len([*tmp_path.iterdir()]) == 1
