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

HUNGRY = "x = b'x' * 10**9; __import__('time').sleep(60)"
LITTLE_MEMORY = {"most_memory": 500_000_000}


@pytest.fixture
def child(tmp_path):
    (tmp_path / "mine.py").write_text(CHILD)
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    with contextlib.closing(Child("mine", environment, tmp_path)) as child:
        yield child


def descendants() -> set[psutil.Process]:
    return set(psutil.Process().children(recursive=True))


def test_a_child_answers_whatever_is_printed_read_or_forked(child):
    stages = []

    def progress(stage, seconds):
        stages.append(stage)

    noise = "print('noise', flush=True); os.write(4, b'{}, no end')"
    for do in (noise, "os.fork()", "os.fork() or sys.exit()"):
        message, data = child.ask({"do": do}, b"abc" * 10**6, timeout=60, progress=progress)
        assert message["read"] == ""
        assert data == b"cba" * 10**6
        assert stages[-1] == "working"


@pytest.mark.parametrize(
    ("do", "limits", "cause"),
    [
        ("print('why'); sys.exit(3)", {}, "with status 3"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", {}, "by SIGSEGV"),
        ("os.fork() and os.abort(); time.sleep(60)", {}, "by SIGABRT"),  # a child holds the pipe
        ("os.write(4, processes.MARK + b'cut off\\n')", {}, "its answers, but not itself"),
        ("os.closerange(3, 99); time.sleep(60)", {}, "its answers, but not itself"),
        ("subprocess.run(['sleep', '60'])", {"timeout": 2}, "time"),
        (f"subprocess.run([sys.executable, '-c', {HUNGRY!r}])", LITTLE_MEMORY, "memory"),
        (HUNGRY, LITTLE_MEMORY, "memory"),
    ],
)
def test_a_child_that_gives_no_answer_says_why_and_another_is_started(child, do, limits, cause):
    running = descendants()  # a compiler of other tests may wait there for its next job
    with pytest.raises(NoAnswer) as raised:
        child.ask({"do": do}, **{"timeout": 60, **limits})
    assert (raised.value.cause, raised.value.stage) == (cause, "working")
    assert raised.value.lines == (["why"] if "why" in do else [])
    assert descendants() <= running
    _, data = child.ask({"do": ""}, b"ab", timeout=60)
    assert data == b"ba"


def test_an_error_of_the_progress_or_an_interruption_ends_a_child(child):
    def interrupt(stage, seconds):
        raise KeyboardInterrupt

    running = descendants()
    with pytest.raises(KeyboardInterrupt):
        child.ask({"do": "time.sleep(60)"}, timeout=60, progress=interrupt)
    assert descendants() <= running


KILLED = """
import os
from tpu_preflight.processes import own_folder

folder = own_folder()
folder.__enter__()
os.abort()
"""


def test_what_killed_processes_left_is_removed_and_nothing_else(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    results = tmp_path / "tpu-preflight-results"  # the user's
    results.mkdir()
    with own_folder() as folder:
        environment = {"TMPDIR": str(tmp_path)}
        subprocess.run([sys.executable, "-c", KILLED], cwd=CODE, env=environment)
        assert len(list(tmp_path.iterdir())) == 3
        with own_folder() as second_folder:
            paths = {str(path) for path in tmp_path.iterdir()}
            assert paths == {folder, second_folder, str(results)}
    assert list(tmp_path.iterdir()) == [results]
