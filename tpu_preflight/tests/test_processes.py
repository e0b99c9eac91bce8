"""A late task is given up, and a process says how it ended."""

import signal
import subprocess
import sys
import threading

import psutil
import pytest

from tpu_preflight.processes import TooLate, ending, family, kill, memory, within


def exits() -> None:
    raise SystemExit("mine")


def test_a_late_task_is_given_up_and_an_error_is_passed_on():
    assert within(10, lambda: 3) == 3
    with pytest.raises(TooLate, match=r"^No answer in 0\.01 seconds\.$"):
        within(0.01, threading.Event().wait)
    with pytest.raises(ZeroDivisionError):
        within(10, lambda: 1 / 0)
    with pytest.raises(SystemExit, match="mine"):  # or it would wait for a thread that has ended
        within(10, exits)


def test_a_family_is_found_and_ended_and_says_how():
    script = (
        "import subprocess as s; c = s.Popen(['sleep', '60']); print(c.pid, flush=True); c.wait()"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as parent:
        child = int(parent.stdout.readline())
        members = family(parent.pid)
        assert [member.pid for member in members] == [parent.pid, child]
        assert memory(members) > memory(members[1:]) > 0
        kill(members)
        assert ending(parent.wait()) == f"by {signal.SIGKILL.name}"
    _, left = psutil.wait_procs(members, timeout=60)
    assert left == []
    kill(members)  # they have ended
    assert family(parent.pid) == [] and memory(members) == 0
    assert ending(3) == "with status 3"
